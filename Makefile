# SPDX-License-Identifier: GPL-2.0-only

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := module

# Where everything that is built goes; nothing else in the checkout is written.
BUILD ?= build

.PHONY: module
module: ## build the module, $(BUILD)/ib_sdp.ko
	+@scripts/module --build '$(BUILD)' $(if $(KDIR),--kdir '$(KDIR)') $(if $(TREE),--tree '$(TREE)') -- $(MODULE_VARIABLES)

# What is handed on to the kernel's build system when given on make's command line.
MODULE_VARIABLES := $(foreach name,V W C CLIPPY LLVM CC RUSTC BINDGEN,$(if $($(name)),$(if $(filter command%,$(origin $(name))),'$(name)=$($(name))')))
