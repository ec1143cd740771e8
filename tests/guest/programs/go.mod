// SPDX-License-Identifier: GPL-2.0-only
module transfer

// From 1.24 on package net listens by MPTCP, as any program of today does.
go 1.24
