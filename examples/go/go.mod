// SPDX-License-Identifier: GPL-2.0-only
module example.com/sdp-echo

go 1.24
