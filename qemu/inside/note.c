// SPDX-License-Identifier: GPL-2.0-only
/* Settings from the host, and notes to the kernel log. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"

const char *setting(const char *name)
{
	static char text[64 << 10];
	size_t length = strlen(name);
	char *line;

	if (!text[0]) {
		int fd = open("/config", O_RDONLY | O_CLOEXEC);
		ssize_t size = read(fd, text, sizeof(text) - 1);

		close(fd);
		for (ssize_t i = 0; i < size; i++)
			if (text[i] == '\n')
				text[i] = 0;
	}
	for (line = text; *line; line += strlen(line) + 1)
		if (!strncmp(line, name, length) && line[length] == '=')
			return line + length + 1;
	return NULL;
}

void note(const char *format, ...)
{
	static int log = -1;
	char text[900];
	int size = snprintf(text, sizeof(text), "<6>guest: ");
	va_list list;

	if (log < 0)
		log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	va_start(list, format);
	size += vsnprintf(text + size, sizeof(text) - size, format, list);
	va_end(list);
	/* Without a newline the record stays open for continuation, and is not printed. */
	if (size >= (int)sizeof(text))
		size = sizeof(text) - 1;
	text[size++] = '\n';
	if (write(log, text, size) < 0)
		return;
}
