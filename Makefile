# SPDX-License-Identifier: GPL-2.0-only

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := module

# Directory of everything that is built; outside this directory the build writes only Python's
# compiled files of tests/guest.
BUILD ?= build

# Variables of the command line that are passed on to the kernel's build system.
handed_on := $(foreach name,V W CLIPPY LLVM CC HOSTCC RUSTC BINDGEN KCFLAGS KRUSTFLAGS ARCH CROSS_COMPILE,\
	$(if $(filter command%,$(origin $(name))),'$(name)=$($(name))'))
build_module = scripts/module --build '$(BUILD)' $(if $(KDIR),--kdir '$(KDIR)') $(if $(TREE),--tree '$(TREE)')

# Places where make install puts files; DESTDIR is in front of all of them.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
install = scripts/install --destdir '$(DESTDIR)' --prefix '$(PREFIX)' --sysconfdir '$(SYSCONFDIR)' $(if $(target),--tools build/cargo/$(target)/release)
# cargo's target for another architecture.
target := $(if $(filter arm64,$(ARCH)),aarch64-unknown-linux-gnu)

.PHONY: module debug selftest demo quick test test-all next torture bench check prepare tools install uninstall modules_install doc deb kmod-deb dist clean help

module: ## (or just make) build the module, build/ib_sdp.ko
	@$(build_module) -- $(handed_on)

debug: ## a kernel with KASAN, lockdep and the like (10 to 20 minutes, once) and the module for it
	@scripts/module --build '$(BUILD)' --debug -- $(handed_on)

selftest: ## build the module with its self-test, for tests/guest/suites/hostile; not for use
	@$(build_module) --selftest -- $(handed_on)

demo: ## show the module at work, in a guest
	@scripts/demo

quick: ## two minutes of tests before a commit: fast checks, host tests, a guest with some of data, zcopy and ipproto
	@scripts/test quick host

test: ## run tests that reach every part; SUITES="host guest" chooses (scripts/test --list); ARCH=arm64: on arm64 kernels, emulated
	@scripts/test $(if $(filter arm64,$(ARCH)),arm64:short arm64-16k:short,$(SUITES))

test-all: ## every suite there is, each case with both versions of IP: many hours
	@scripts/test all

next: ## the same module on the newest kernel that Debian has anywhere: an early warning, which fails nothing else
	@scripts/prepare --refresh --kernel next
	@scripts/test series:next

torture: ## the guest tests on the debug kernel while memory fails; MINUTES=60 SEED=1 SUITES="data close"
	@scripts/torture $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(SEED),--seed '$(SEED)') -- $(SUITES)

bench: ## measure against verbs, rsockets and TCP; results in build/bench
	@scripts/bench

check: ## formatting, lints, licence headers, unsafe only in src/sys, rooms of src import downward only
	@scripts/check

prepare: ## only fill the cache (every target does so when needed)
	@scripts/prepare

tools: ## build sdp-run, libsdp.so, sdp-check, sdpctl and sdpstat, into build/cargo/release, and what shells complete them by
	@$(if $(filter-out /etc,$(SYSCONFDIR)),SDP_RULES='$(SYSCONFDIR)/libsdp.conf') CARGO_TARGET_DIR= scripts/cargo build $(if $(target),--target $(target)) --release --locked -p libsdp -p sdp-run -p sdp-check -p sdpctl -p sdpstat -p sdp-completions
	@CARGO_TARGET_DIR= scripts/cargo run --quiet --release --locked -p sdp-completions -- build/completions

install: tools $(if $(filter no,$(MODULE)),,module) ## install module, tools, manual pages; DESTDIR, PREFIX, SYSCONFDIR, MODULE=no
	@$(install) $(if $(filter no,$(MODULE)),--no-module) --module --build --module '$(BUILD)' \
		$(if $(KDIR),--module --kdir --module '$(KDIR)') $(if $(TREE),--module --tree --module '$(TREE)') install -- $(handed_on)

uninstall: ## remove what make install has installed, given the same DESTDIR, PREFIX and SYSCONFDIR
	@$(install) uninstall

modules_install: ## install the module for its kernel, below INSTALL_MOD_PATH if given
	@$(build_module) --install '$(INSTALL_MOD_PATH)' -- $(handed_on)

doc: ## what the comments of the sources say, as pages: build/cargo/doc
	@scripts/cargo doc --workspace --no-deps --document-private-items
	@$(build_module) --doc build/cargo/doc -- CLIPPY=1 $(handed_on)

deb: tools ## Debian packages of tools and module (by DKMS), into build/deb
	@scripts/deb $(if $(target),--arch $(ARCH))

dist: ## source tarball of the commit, build/ib-sdp-VERSION.tar.xz
	@scripts/dist

kmod-deb: ## a Debian package of the built module, for nodes without compilers: build/kmod; KERNEL=NAME, SIGN_KEY=FILE SIGN_CERT=FILE
	@scripts/kmod-deb $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(SIGN_KEY),--key '$(SIGN_KEY)') $(if $(SIGN_CERT),--cert '$(SIGN_CERT)')

clean: ## delete what was built (the cache outside the checkout stays)
	@scripts/clean '$(BUILD)'

help: ## this list
	@sed -n 's/^\([a-z_-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-16s %s\n' "$$name" "$$what"; done
	@echo
	@echo "  KDIR=DIR            build against this prepared kernel tree with this machine's compilers"
	@echo "  TREE=DIR            build against this prepared kernel tree with the project's compilers"
	@echo "  BUILD=DIR           build there instead of in build/"
	@echo "  V=1, W=1, CLIPPY=1  as in the kernel"
	@echo "  AF_SDP_CACHE=DIR    where compilers, kernels and guests are kept (default: ~/.cache/af_sdp)"
	@echo "  AF_SDP_MIRROR=URI   the Debian archive to take packages from (default: as /etc/apt says)"
	@echo "  AF_SDP_KERNEL=NAME  the stock kernel to build for and boot: a series ($$(sed '/^#/d' scripts/series | paste -sd' ')) or a version"
	@echo "                      (default: the newest that the mirror has completely)"
