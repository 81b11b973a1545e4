// Shop reserves pieces of stock.left, many at once, and prints how many it has promised. Arguments: host, how, workers, reservations
// of each worker.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	music "music/clients/go"
)

const item = "lamp"

// shop is a session with a shop's table.
type shop struct{ session *gocql.Session }

// plain reads and then writes, as if there were nobody else.
func (s shop) plain() error {
	left, err := s.left("SELECT left FROM shop.stock WHERE item = ?", item)
	if err != nil {
		return err
	}
	return s.session.Query("UPDATE shop.stock SET left = ? WHERE item = ?", left-1, item).Exec()
}

// conditional writes only if what it has read still holds, and otherwise tries again.
func (s shop) conditional() error {
	for {
		left, err := s.left("SELECT left FROM shop.stock WHERE item = ?", item)
		if err != nil {
			return err
		}
		applied, err := s.session.Query("UPDATE shop.stock SET left = ? WHERE item = ? IF left = ?", left-1, item, left).MapScanCAS(map[string]any{})
		if applied || err != nil {
			return err
		}
	}
}

// locked reads and writes under the item's lock.
func (s shop) locked() error {
	return music.Do(context.Background(), s.session, music.Ask{Table: "shop.stock", Key: music.Key{"item": item}, Wait: time.Minute},
		func(held context.Context, lock *music.Lock) error {
			var left int
			if err := s.session.Bind("SELECT left FROM shop.stock WHERE item = ? USING LOCK ?", lock.Bind(item)).ScanContext(held, &left); err != nil {
				return err
			}
			return s.session.Bind("UPDATE shop.stock USING LOCK ? SET left = ? WHERE item = ?", lock.Bind(left-1, item)).ExecContext(held)
		})
}

// left returns what a query for one number does.
func (s shop) left(query string, values ...any) (int, error) {
	var left int
	err := s.session.Query(query, values...).Scan(&left)
	return left, err
}

func main() {
	cluster := gocql.NewCluster(os.Args[1])
	cluster.Consistency, cluster.Timeout = gocql.Quorum, 30*time.Second
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	s := shop{session}
	reserve := map[string]func() error{"plain": s.plain, "if": s.conditional, "lock": s.locked}[os.Args[2]]
	workers, each := number(os.Args[3]), number(os.Args[4])
	var wait sync.WaitGroup
	var promised atomic.Int64
	for range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range each {
				if err := reserve(); err != nil {
					log.Print(err)
					continue
				}
				promised.Add(1)
			}
		}()
	}
	wait.Wait()
	fmt.Println(promised.Load())
}

// number returns an argument.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}
