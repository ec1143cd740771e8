// SPDX-License-Identifier: GPL-2.0-only
unsigned int smc_settings_id;
struct netns_smc smc_no_settings;

static struct pernet_operations smc_settings_ops = {
	.id = &smc_settings_id,
	.size = sizeof(struct netns_smc),
};

int smc_settings_init(void)
{
	return register_pernet_subsys(&smc_settings_ops);
}

void smc_settings_exit(void)
{
	unregister_pernet_subsys(&smc_settings_ops);
}
