package config_test

import (
	"testing"

	"music/config"
)

func TestPatternsOfCriticalTables(t *testing.T) {
	m := config.Music{Critical: []string{"bank.*", "Shop.order?", `"Mixed"."Case*"`, "*.audit"}}
	for name, want := range map[[2]string]bool{
		{"bank", "accounts"}: true, {"bank", "Accounts"}: true, {"bankrupt", "accounts"}: false, {"Bank", "accounts"}: false,
		{"shop", "orders"}: true, {"shop", "order"}: false, {"Shop", "orders"}: false,
		{"Mixed", "Cases"}: true, {"Mixed", "cases"}: false, {"mixed", "Cases"}: false,
		{"any", "audit"}: true, {"system", "audit"}: false, {"system_auth", "audit"}: false, {"music", "audit"}: false,
	} {
		if got := m.CriticalByName(name[0], name[1]); got != want {
			t.Errorf("%v: %v, want %v", name, got, want)
		}
	}
	if (config.Music{}).CriticalByName("bank", "accounts") {
		t.Error("a table is critical by no pattern")
	}
}

func TestRulesAreTheSameHoweverTheyAreWritten(t *testing.T) {
	a := config.Music{Critical: []string{"bank.*", `shop."Orders"`}}.CriticalRules()
	b := config.Music{Critical: []string{`shop."Orders"`, "BANK.*", "bank.*"}}.CriticalRules()
	if a != b || a == "" {
		t.Fatalf("%s and %s", a, b)
	}
	if c := (config.Music{Critical: []string{"bank.*", "shop.orders"}}).CriticalRules(); c == a {
		t.Fatalf("%s is another rule", c)
	}
	if none := (config.Music{}).CriticalRules(); none != "" {
		t.Fatal(none)
	}
}
