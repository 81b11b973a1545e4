//go:build compat

package apps

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How a shop is used, and how often.
const (
	buyers = 8
	each   = 25 // reservations of one buyer
	stock  = 1000
)

// shops returns how to start the shop in each language.
func (w *world) shops() map[string][]string {
	helper := filepath.Join(w.dir, "helper")
	classes := filepath.Join(helper, "music-locks-1.0.0.jar") + string(filepath.ListSeparator) + filepath.Join(helper, "lib", "*")
	return map[string][]string{
		"Go":      {filepath.Join(w.dir, "shop")},
		"Python":  {"python3", "shop/python/shop.py"},
		"Java":    {"java", "-XX:TieredStopAtLevel=1", "-Dio.netty.machineId=02:00:00:00:00:00:00:01", "-cp", classes, "shop/java/Shop.java"},
		"Node.js": {"node", "shop/node/shop.js"},
	}
}

// A shop that reads and then writes loses updates, directly and through a proxy. With IF on a table
// with unlocked=auto, and under locks, it loses none.
func TestShop(t *testing.T) {
	w := start(t)
	direct, proxied := session(t, w.node.Nodes()[0].Addr()), session(t, proxyAddress)
	fresh(t, direct, "shop")
	require.NoError(t, proxied.Query("CREATE TABLE shop.stock (item text PRIMARY KEY, left int)").Exec())
	lost := map[string]map[string]int{}
	sell := func(column, address, how string) {
		lost[column] = map[string]int{}
		for language, command := range w.shops() {
			require.NoError(t, proxied.Query("INSERT INTO shop.stock (item, left) VALUES ('lamp', ?)", stock).Exec())
			cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], host(t, address), how, strconv.Itoa(buyers), strconv.Itoa(each))...)
			cmd.Env, cmd.Stderr = append(os.Environ(), w.programs()...), os.Stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s, %s", language, how)
			promised, err := strconv.Atoi(strings.TrimSpace(string(out)))
			require.NoError(t, err, "%s", out)
			var left int
			require.NoError(t, direct.Query("SELECT left FROM shop.stock WHERE item = 'lamp'").Scan(&left))
			assert.Equal(t, buyers*each, promised, "%s, %s", language, how)
			lost[column][language] = promised - (stock - left)
			t.Logf("%s, %s: %d promised, %d gone, %d lost", language, column, promised, stock-left, lost[column][language])
		}
	}
	sell("direct", w.node.Nodes()[0].Addr(), "plain")
	adopt(t, proxied, "shop", comment, "")
	sell("auto", proxyAddress, "plain")
	sell("auto and IF", proxyAddress, "if")
	sell("locks", proxyAddress, "lock")

	table := []string{"| | direct | `unlocked=auto`, unchanged | `unlocked=auto` and IF | locks |", "|---|---|---|---|---|"}
	for _, language := range []string{"Go", "Python", "Java", "Node.js"} {
		table = append(table, fmt.Sprintf("| %s | %d | %d | %d | %d |", language, lost["direct"][language], lost["auto"][language], lost["auto and IF"][language], lost["locks"][language]))
		assert.Positive(t, lost["direct"][language], "%s: the shop has something to lose", language)
		assert.Zero(t, lost["auto and IF"][language], language)
		assert.Zero(t, lost["locks"][language], language)
	}
	w.record(t, "shop", table)
}
