/* Waiting for a word of memory that another thread of this process changes: a while in user space, then in the kernel. */
#ifndef SN_BASE_FUTEX_H
#define SN_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sleeps until the word is woken, unless it is `seen` no more. */
static inline void sn_futex_wait(atomic_uint *word, unsigned seen) {
    syscall(SYS_futex, (unsigned *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* Wakes all that sleep on the word. */
static inline void sn_futex_wake(atomic_uint *word) { syscall(SYS_futex, (unsigned *)word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0); }

/* Returns when the word is `seen` no more; looks `spins` times before it sleeps. */
static inline void sn_wait_while(atomic_uint *word, unsigned seen, int spins) {
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
        __builtin_ia32_pause();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == seen) sn_futex_wait(word, seen);
}

#endif
