"""A text that stays the same: four licences that every Debian and Ubuntu machine has. Prints it; `text()` gives it.

    python tests/interop/fixed_text.py > text.txt

Figures against other programs were once taken on this repository's docs, and changed with every page. Another edition of a licence is
said on standard error, as figures then differ from those in README.md.
"""
import hashlib
import sys

SHA256 = "28d0994511b1fc962da8ba992dd509a9d6961d7d700b797dd289fe4f041ce218"


def text():
    whole = "".join(open(f"/usr/share/common-licenses/{name}", encoding="utf-8").read() for name in ("GPL-3", "GFDL-1.3", "Apache-2.0", "MPL-2.0"))
    if hashlib.sha256(whole.encode()).hexdigest() != SHA256:
        print("fixed_text.py: this machine has other editions of the licences than the figures were taken on", file=sys.stderr)
    return whole


if __name__ == "__main__":
    sys.stdout.write(text())
