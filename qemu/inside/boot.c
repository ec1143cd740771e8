// SPDX-License-Identifier: GPL-2.0-only
/* From the start of the first process until the guest is ready for commands. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

#define NEW_ROOT "/new"
#define NINE_P "trans=virtio,version=9p2000.L,msize=512000,"

static int to_host = -1;

/* Report to the host why this guest cannot be used, and stop. */
static void fail(const char *format, ...)
{
	struct buffer out = { 0 };
	char text[4000];
	va_list list;
	int size;

	va_start(list, format);
	size = vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (size >= (int)sizeof(text))
		size = sizeof(text) - 1;
	note("%s", text);
	frame_add(&out, FRAME_FAILED, 0, text, size);
	fcntl(to_host, F_SETFL, 0);
	buffer_write(&out, to_host);
	for (;;)
		pause();
}

static void try_mount(const char *source, const char *target, const char *type,
		      unsigned long flags, const char *options)
{
	/* mkdir fails in a root without the directory; the result of the mount reports that. */
	mkdir(target, 0755);
	mount(source, target, type, flags, options);
}

static void need_mount(const char *source, const char *target, const char *type,
		       unsigned long flags, const char *options)
{
	mkdir(target, 0755);
	if (mount(source, target, type, flags, options))
		fail("cannot mount %s (%s) on %s: %s", source, type, target,
		     strerror(errno));
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd >= 0) {
		if (write(fd, text, strlen(text)) < 0)
			note("%s: %s", path, strerror(errno));
		close(fd);
	}
}

static int load_module(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int result = syscall(SYS_finit_module, fd, parameters, 0);

	close(fd);
	return result;
}

/* Load the modules of a list, one a line, dependencies first. */
static void load_modules(const char *list)
{
	char line[256], path[300];
	FILE *file = fopen(list, "re");

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof(path), "/modules/%s", line);
		if (load_module(path, "") && errno != EEXIST)
			fail("cannot load %s: %s", line, strerror(errno));
	}
	if (file)
		fclose(file);
}

static void wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
	char bytes[64 << 10];
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	ssize_t size;

	while ((size = read(in, bytes, sizeof(bytes))) > 0)
		if (write(out, bytes, size) != size)
			fail("cannot write %s: %s", to, strerror(errno));
	close(in);
	close(out);
}

/* Mounts the user land: the host's directory, never written to, under a layer in memory. */
static void make_root(void)
{
	need_mount("tmpfs", "/layer", "tmpfs", 0, "mode=755");
	mkdir("/layer/upper", 0755);
	mkdir("/layer/scratch", 0755);
	need_mount("root", "/lower", "9p", MS_RDONLY,
		   NINE_P "cache=loose");
	need_mount("root", NEW_ROOT, "overlay", 0,
		   "lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/scratch");

	need_mount("/dev", NEW_ROOT "/dev", NULL, MS_MOVE, NULL);
	need_mount("/proc", NEW_ROOT "/proc", NULL, MS_MOVE, NULL);
	need_mount("/sys", NEW_ROOT "/sys", NULL, MS_MOVE, NULL);
	need_mount("tmpfs", NEW_ROOT "/run", "tmpfs", 0, "mode=755");
	need_mount("tmpfs", NEW_ROOT "/tmp", "tmpfs", 0, "mode=1777");
	try_mount("devpts", NEW_ROOT "/dev/pts", "devpts", 0, "ptmxmode=666,mode=620,gid=5");
	try_mount("tmpfs", NEW_ROOT "/dev/shm", "tmpfs", 0, "mode=1777");
	try_mount("debugfs", NEW_ROOT "/sys/kernel/debug", "debugfs", 0, NULL);
	try_mount("tracefs", NEW_ROOT "/sys/kernel/tracing", "tracefs", 0, NULL);
	try_mount("cgroup2", NEW_ROOT "/sys/fs/cgroup", "cgroup2", 0, NULL);
	try_mount("bpf", NEW_ROOT "/sys/fs/bpf", "bpf", 0, NULL);

	/* Modules are writable, so that a test may add some and run depmod. */
	if (setting("modules")) {
		mkdir("/layer/modules-upper", 0755);
		mkdir("/layer/modules-scratch", 0755);
		need_mount("modules", "/lower-modules", "9p", MS_RDONLY,
			   NINE_P "cache=loose");
		mkdir(NEW_ROOT "/lib", 0755);
		need_mount("modules", NEW_ROOT "/lib/modules", "overlay", 0,
			   "lowerdir=/lower-modules,upperdir=/layer/modules-upper,workdir=/layer/modules-scratch");
	}
	need_mount("src", NEW_ROOT "/src", "9p", MS_RDONLY, NINE_P "cache=loose");
	/* Cached only where mmap() needs it, because the other guest and the host write to this
	 * directory too. */
	if (setting("share"))
		need_mount("share", NEW_ROOT "/share", "9p", 0, NINE_P "cache=mmap");
}

static void enter_root(void)
{
	mkdir(NEW_ROOT RUN_DIRECTORY, 0755);
	copy_file("/init", NEW_ROOT RUN_DIRECTORY "/peer", 0755);
	copy_file("/setup", NEW_ROOT RUN_DIRECTORY "/setup", 0755);
	copy_file("/config", NEW_ROOT RUN_DIRECTORY "/config", 0644);
	/* Kept for tests that unload the module, because the module in the checkout may have
	 * changed. */
	if (setting("module"))
		copy_file("/ib_sdp.ko", NEW_ROOT RUN_DIRECTORY "/ib_sdp.ko", 0644);
	mkdir(NEW_ROOT "/usr/local", 0755);
	mkdir(NEW_ROOT "/usr/local/bin", 0755);
	unlink(NEW_ROOT "/usr/local/bin/peer");
	if (symlink(RUN_DIRECTORY "/peer", NEW_ROOT "/usr/local/bin/peer"))
		fail("cannot make the command `peer`: %s", strerror(errno));

	if (chdir(NEW_ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) ||
	    chroot(".") || chdir("/"))
		fail("cannot enter the user land: %s", strerror(errno));

	sethostname(setting("host"), strlen(setting("host")));
	write_file("/etc/hostname", setting("host"));
	write_file("/etc/hosts",
		   "127.0.0.1 localhost\n"
		   "::1 localhost ip6-localhost\n"
		   "10.77.0.1 self\n"
		   "10.77.0.2 peer\n"
		   "fd77::1 self self6\n"
		   "fd77::2 peer peer6\n");
}

/* Turns off duplicate detection, because an address that is being checked cannot be bound to. */
static void no_duplicate_check(void)
{
	write_file("/proc/sys/net/ipv6/conf/all/accept_dad", "0");
	write_file("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
}

/* Does the same as `ip netns add peer`. */
static void make_peer_namespace(void)
{
	pid_t child;

	mkdir("/run/netns", 0755);
	write_file("/run/netns/peer", "");
	child = fork();
	if (!child) {
		if (unshare(CLONE_NEWNET) ||
		    mount("/proc/self/ns/net", "/run/netns/peer", NULL, MS_BIND, NULL))
			fail("cannot make a network namespace: %s", strerror(errno));
		no_duplicate_check();
		_exit(0);
	}
	wait_for(child);
}

static void read_file(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? 0 : read(fd, text, room - 1);

	close(fd);
	text[size > 0 ? size : 0] = 0;
}

/* Returns true if the device's port is active and, unless it is siw's, has the GIDs of both
 * addresses of that host, or of the only one with ipv6.disable=1. */
static bool is_usable(const char *device, int host)
{
	char path[200], text[100], wanted[2][50];
	int found = 0;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/state", device);
	read_file(path, text, sizeof(text));
	if (!strstr(text, "ACTIVE"))
		return false;
	if (!strncmp(device, "siw", 3))
		return true;
	snprintf(wanted[0], sizeof(wanted[0]), "0000:0000:0000:0000:0000:ffff:0a4d:%04d", host);
	snprintf(wanted[1], sizeof(wanted[1]), "fd77:0000:0000:0000:0000:0000:0000:%04d", host);
	for (int i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/%d", device, i);
		read_file(path, text, sizeof(text));
		found |= !strncmp(text, wanted[0], 39) | !strncmp(text, wanted[1], 39) << 1;
	}
	return found == (access("/proc/net/if_inet6", F_OK) ? 1 : 3);
}

/* The kernel enters addresses into the GID table from a work queue, and notifies nobody. */
static void wait_for_device(const char *device, int host)
{
	for (int tries = 0; !is_usable(device, host); tries++) {
		if (tries == 100000)
			fail("the RDMA device %s did not become active with both its addresses", device);
		usleep(2000);
	}
}

/* Sets up interfaces, addresses and RDMA devices by a script, because `ip` and `rdma` do these
 * steps.
 */
static void run_setup(void)
{
	static char text[3500];
	pid_t child = fork();
	int status, fd;
	size_t size;

	if (!child) {
		fd = open(RUN_DIRECTORY "/setup.log",
			  O_RDWR | O_CREAT | O_TRUNC, 0644);
		dup2(open("/dev/null", O_RDONLY), 0);
		dup2(fd, 1);
		dup2(fd, 2);
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
		setenv("HOST", setting("host"), 1);
		setenv("HOSTS", setting("hosts"), 1);
		setenv("RDMA", setting("rdma"), 1);
		execl("/bin/sh", "sh", "-e", RUN_DIRECTORY "/setup", NULL);
		dprintf(2, "/bin/sh: %s", strerror(errno));
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!status)
		return;
	read_file(RUN_DIRECTORY "/setup.log", text, sizeof(text));
	size = strlen(text);
	while (size > 0 && text[size - 1] == '\n')
		text[--size] = 0;
	fail("the network could not be set up: %s", text);
}

/*
 * Called twice: first without a port, for the steps that bring devices up (a failure shows on the
 * console only), then with the port for all others.
 */
void boot(int port)
{
	char device[16];
	bool one_guest;
	pid_t rdma;

	if (port < 0) {
		mount("devtmpfs", "/dev", "devtmpfs", 0, "mode=755");
		mount("proc", "/proc", "proc", 0, NULL);
		mount("sysfs", "/sys", "sysfs", 0, NULL);
		if (setting("emulated"))
			load_modules("/modules/emulated");
		return;
	}
	to_host = port;
	/* From here on the console shows everything, not errors only. */
	write_file("/proc/sys/kernel/printk", "8 4 1 7");
	note("loading modules");

	/* The RDMA stack takes as long as all other modules, so both are loaded side by side. */
	rdma = fork();
	if (!rdma) {
		load_modules("/modules/network");
		_exit(0);
	}
	load_modules("/modules/root");
	make_root();
	wait_for(rdma);
	if (!strcmp(setting("rdma"), "siw") && load_module("/siw.ko", ""))
		fail("the kernel did not take siw.ko: %s", strerror(errno));
	if (setting("module") &&
	    load_module("/ib_sdp.ko", setting("params")))
		fail("the kernel did not take ib_sdp.ko%s%s%s: %s",
		     *setting("params") ? " with the parameters \"" : "",
		     setting("params"), *setting("params") ? "\"" : "",
		     strerror(errno));
	enter_root();
	note("setting up the network");
	no_duplicate_check();
	if (sysconf(_SC_NPROCESSORS_ONLN) != atoi(setting("cpus")))
		fail("the kernel has found %ld processors, not %s",
		     sysconf(_SC_NPROCESSORS_ONLN), setting("cpus"));
	one_guest = atoi(setting("hosts")) == 1;
	if (one_guest)
		make_peer_namespace();
	run_setup();
	snprintf(device, sizeof(device), "%s0", setting("rdma"));
	wait_for_device(device, strcmp(setting("host"), "peer") ? 1 : 2);
	if (one_guest)
		wait_for_device("rxe1", 2);
	note("ready");
}
