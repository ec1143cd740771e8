// SPDX-License-Identifier: GPL-2.0-only
/*
 * Continues where an emulator executes a breakpoint that has been removed from memory.
 *
 * The kernel patches its own code (static keys, tracepoints) by way of int3. Emulation with several
 * virtual processors can lose such a write: between the moment QEMU discards the translation of the
 * old bytes and the moment it stores the new bytes, another processor may translate the old bytes
 * again. The other processor then executes an int3 long after the patching. No handler claims it,
 * and the kernel dies of "Oops: int3". The fault was seen once in some fifty boots on a busy
 * machine, in QEMU 7.2 and 10.0.
 *
 * Only an int3 that is not in memory is handled, so breakpoints that the kernel itself has lost
 * still show. The resume flag makes the emulator translate the code again, because it caches
 * translations by flags, too.
 */
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/ptrace.h>
#include <linux/uaccess.h>
#include <asm/processor-flags.h>
#include <asm/text-patching.h>

static unsigned int passed;
module_param(passed, uint, 0444);
MODULE_PARM_DESC(passed, "Number of stale int3 traps that were passed over");

static int on_trap(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *trap = data;
	struct pt_regs *regs = trap->regs;
	u8 byte;

	if (event != DIE_INT3 || user_mode(regs))
		return NOTIFY_DONE;
	if (copy_from_kernel_nofault(&byte, (void *)(regs->ip - INT3_INSN_SIZE), 1) ||
	    byte == INT3_INSN_OPCODE)
		return NOTIFY_DONE;
	regs->ip -= INT3_INSN_SIZE;
	regs->flags |= X86_EFLAGS_RF;
	passed++;
	return NOTIFY_STOP;
}

static struct notifier_block block = {
	.notifier_call = on_trap,
	.priority = INT_MIN,	/* after all handlers that may own the breakpoint */
};

static int __init stale_int3_init(void)
{
	return register_die_notifier(&block);
}
module_init(stale_int3_init);

static void __exit stale_int3_exit(void)
{
	unregister_die_notifier(&block);
}
module_exit(stale_int3_exit);

MODULE_DESCRIPTION("Carry on at breakpoints that only an emulator still sees");
MODULE_LICENSE("GPL");
