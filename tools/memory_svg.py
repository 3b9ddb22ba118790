#!/usr/bin/env python3
"""Draws pages of `snug plan --html` as one SVG: time to the right, address upwards, a rectangle a block of bytes.

    for r in none light all; do snug plan smollm2-135m-instruct --full -b 4 --cutoff-len 256 --recompute $r --html $r.html; done
    tools/memory_svg.py "recompute none=none.html" "recompute light=light.html" "recompute all=all.html" > docs/memory.svg

Draws the device memory of program step, all panels at one scale.
"""
import json, re, sys

COLORS = ["#4878a8", "#d65f5f", "#e2a03f", "#6aa84f", "#8e6bbf", "#3fb8b0", "#b07d48", "#c774b2", "#999999"]
WIDTH, HEIGHT, GAP, TOP = 400, 300, 40, 30


def load(argument):
    title, path = argument.split("=", 1)
    plan = json.loads(re.search(r"^const plan=(\{.*?\});$", open(path).read(), re.M | re.S).group(1))
    program = next(p for p in plan["programs"] if p["name"] == "step")
    own = [(0, len(program["ops"]), o, b, c) for o, b, c, tier, _ in plan["persistent"] if tier == 0]
    lives = [(f, t + 1, o, b, c) for f, t, o, b, c, tier, _ in program["lives"] if tier == 0]
    return title, plan, len(program["ops"]), merged(own + lives)


def merged(blocks):
    """Neighbours of one class that live equally long become one: thousands of small factors are no picture."""
    out = []
    for f, t, offset, size, c in sorted(blocks, key=lambda b: (b[4], b[0], b[1], b[2])):
        if out and out[-1][:2] == [f, t] and out[-1][4] == c and 0 <= offset - out[-1][2] - out[-1][3] < 64:
            out[-1][3] = offset + size - out[-1][2]
        else:
            out.append([f, t, offset, size, c])
    return out


def panel(out, left, item, scale):
    title, plan, steps, blocks = item
    out.append(f'<text x="{left}" y="{TOP - 10}">{title}: {plan["total"] / 2**20:.0f} MiB</text>')
    out.append(f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="#f4f4f4"/>')
    for color in range(len(COLORS)):
        path = []
        for f, t, offset, size, c in blocks:
            if c != color or size * scale < 0.15:
                continue
            x, w = left + f * WIDTH / steps, max(0.2, (t - f) * WIDTH / steps)
            y, h = TOP + HEIGHT - (offset + size) * scale, size * scale
            path.append(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z")
        if path:
            out.append(f'<path fill="{COLORS[color]}" stroke="#fff" stroke-width=".1" d="{"".join(path)}"/>')


def main():
    items = [load(a) for a in sys.argv[1:]]
    high = max(o + b for _, _, _, blocks in items for _, _, o, b, _ in blocks)
    width = len(items) * (WIDTH + GAP) + GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 60}" font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{TOP + HEIGHT + 60}" fill="#fff"/>']
    for i, item in enumerate(items):
        panel(out, GAP + i * (WIDTH + GAP), item, HEIGHT / high)
    out.append(f'<text x="{GAP}" y="{TOP + HEIGHT + 18}" fill="#555">time: instructions of one training step &#8594;  (address upwards)</text>')
    x = GAP
    for color, name in zip(COLORS, items[0][1]["classes"]):
        if name in ("weights", "gradients", "optimizer", "activations", "workspace"):
            out.append(f'<rect x="{x}" y="{TOP + HEIGHT + 32}" width="11" height="11" fill="{color}"/><text x="{x + 16}" y="{TOP + HEIGHT + 42}">{name}</text>')
            x += 110
    print("\n".join(out + ["</svg>"]))


main()
