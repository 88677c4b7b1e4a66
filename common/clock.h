/* clock.h - the two clocks, in milliseconds. libc only. */
#pragma once

#include <stdint.h>

int64_t clock_mono_ms(void); /* never jumps; for durations and deadlines */
int64_t clock_mono_us(void);
int64_t clock_real_ms(void); /* since the epoch; for what is stored or shown */

/* Milliseconds left until a clock_mono_ms() deadline, as poll(2) takes them: 0 when it passed, -1 for a
   negative deadline (none). */
int clock_left_ms(int64_t deadline_ms);

/* "2026-01-31T10:00:00.000Z" into a buffer of at least CLOCK_ISO_SIZE bytes. */
#define CLOCK_ISO_SIZE 32
void clock_iso(int64_t real_ms, char out[CLOCK_ISO_SIZE]);
