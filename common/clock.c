#include "common/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static int64_t now_us(clockid_t which)
{
    struct timespec ts;

    (void)clock_gettime(which, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void) { return now_us(CLOCK_MONOTONIC); }
int64_t clock_mono_ms(void) { return now_us(CLOCK_MONOTONIC) / 1000; }
int64_t clock_real_ms(void) { return now_us(CLOCK_REALTIME) / 1000; }

int clock_left_ms(int64_t deadline_ms)
{
    if (deadline_ms < 0)
        return -1;
    int64_t left = deadline_ms - clock_mono_ms();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void clock_iso(int64_t real_ms, char out[CLOCK_ISO_SIZE])
{
    time_t s = (time_t)(real_ms / 1000);
    struct tm tm;
    char day[24] = "1970-01-01T00:00:00";

    if (gmtime_r(&s, &tm))
        (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, CLOCK_ISO_SIZE, "%s.%03dZ", day, (int)(real_ms % 1000));
}
