// SPDX-License-Identifier: GPL-2.0-only
/* Shared by the programs that serve many connections in one thread: events, and round trips on one
 * connection after the other. */
#ifndef BENCH_EVENTS_H
#define BENCH_EVENTS_H

#include "measuring.h"

/* Number of events, and number of spurious events. */
static unsigned long long events, empty;

static void print_events(struct mark from)
{
	printf("\"events\": %llu, \"empty\": %llu, ", events, empty);
	print_span(from, mark());
	puts("}");
}

/* Exchanges a message in both directions on a connection. */
static void round_trip(int i);

/* Runs for this number of seconds, after a few rounds that are not counted. */
static void measure_round_trips(int connections, double seconds)
{
	float *times = malloc(MAX_TIMES * sizeof(*times));
	double start_time, last, time;
	struct mark start;
	int i, count = 0;

	if (!times)
		fail("no memory");
	for (i = 0; i < 2 * connections + 20; i++)
		round_trip(i % connections);
	events = empty = 0;
	start = mark();
	start_time = last = now();
	while (count < MAX_TIMES && last - start_time < seconds) {
		round_trip(count % connections);
		time = now();
		times[count++] = time - last;
		last = time;
	}
	printf("{");
	print_round_trips(times, count);
	print_events(start);
}

#endif
