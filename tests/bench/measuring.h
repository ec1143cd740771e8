// SPDX-License-Identifier: GPL-2.0-only
/* Shared by the programs of the benchmark: clocks, counters of the kernel, and their output. */
#ifndef BENCH_MEASURING_H
#define BENCH_MEASURING_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MAX_TIMES (1 << 20)

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	_exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Processor time of this process, in seconds. */
static double used(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Counters of the kernel since the boot: idle time of the processors in seconds (the kernel's own
 * threads count as busy), and context switches. */
static void count_kernel(double *idle, unsigned long long *switches)
{
	unsigned long long ticks, waiting;
	FILE *file = fopen("/proc/stat", "r");
	char line[4096];

	if (!file || fscanf(file, "cpu %*u %*u %*u %llu %llu", &ticks, &waiting) != 2)
		fail("cannot read /proc/stat");
	*idle = (double)(ticks + waiting) / sysconf(_SC_CLK_TCK);
	*switches = 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "ctxt %llu", switches) == 1)
			break;
	fclose(file);
}

struct mark {
	double time, used, idle;
	unsigned long long switches;
};

static struct mark mark(void)
{
	struct mark mark = { now(), used(), 0, 0 };

	count_kernel(&mark.idle, &mark.switches);
	return mark;
}

static void print_span(struct mark from, struct mark to)
{
	double span = to.time - from.time;

	printf("\"seconds\": %.6f, \"process_cpu\": %.6f, \"guest_cpu\": %.6f, \"switches\": %llu", span, to.used - from.used,
	       span * sysconf(_SC_NPROCESSORS_ONLN) - (to.idle - from.idle), to.switches - from.switches);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Prints the times of round trips in seconds. Latency is half a round trip, as in perftest and
 * qperf. */
static void print_round_trips(float *times, int count)
{
	double sum = 0;
	int i;

	for (i = 0; i < count; i++)
		sum += times[i];
	qsort(times, count, sizeof(*times), compare);
	printf("\"count\": %d, \"median_us\": %.3f, \"mean_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, ", count,
	       times[count / 2] * 5e5, sum / count * 5e5, times[0] * 5e5, times[count * 99LL / 100] * 5e5);
}

#endif
