package config_test

import (
	"testing"

	"music/config"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatternsOfCriticalTables(t *testing.T) {
	m := config.Music{Critical: []string{"bank.*", "Shop.order?", `"Mixed"."Case*"`, "*.audit"}}
	for name, want := range map[[2]string]bool{
		{"bank", "accounts"}: true, {"bank", "Accounts"}: true, {"bankrupt", "accounts"}: false, {"Bank", "accounts"}: false,
		{"shop", "orders"}: true, {"shop", "order"}: false, {"Shop", "orders"}: false,
		{"Mixed", "Cases"}: true, {"Mixed", "cases"}: false, {"mixed", "Cases"}: false,
		{"any", "audit"}: true, {"system", "audit"}: false, {"system_auth", "audit"}: false, {"music", "audit"}: false, {"systems", "audit"}: true,
	} {
		assert.Equal(t, want, m.CriticalByName(name[0], name[1]), "%v", name)
	}
	assert.False(t, (config.Music{}).CriticalByName("bank", "accounts"), "a table is critical by no pattern")
}

func TestRulesAreTheSameHoweverTheyAreWritten(t *testing.T) {
	a := config.Music{Critical: []string{"bank.*", `shop."Orders"`}}.CriticalRules()
	b := config.Music{Critical: []string{`shop."Orders"`, "BANK.*", "bank.*"}}.CriticalRules()
	require.Equal(t, b, a)
	require.NotEmpty(t, a)
	require.NotEqual(t, a, (config.Music{Critical: []string{"bank.*", "shop.orders"}}).CriticalRules(), "a name in quotes is another rule")
	require.Empty(t, (config.Music{}).CriticalRules())
}
