package experiment

// All are the experiments, in the order in which they are run.
func All() []Experiment {
	return []Experiment{
		throughput(), latency(), steps(),
		batches("fig6a", "puts a second in sections of many puts of 10 B (paper, Fig. 6a)", "1.4–2.3", []batch{
			{onePut, 1, 10, false}, {"10 puts", 10, 10, false}, {"100 puts", 100, 10, true}, {"1000 puts", 1000, 10, true},
		}),
		batches("fig6b", "puts a second in sections of 100 puts by size (paper, Fig. 6b)", "2.45–17", []batch{
			{"10 B", 100, 10, false}, {"1 kB", 100, 1 << 10, true}, {"16 kB", 100, 16 << 10, false}, {"256 kB", 100, 256 << 10, true},
		}),
		updates(), transactions(), scaled(Sites), scaled(Sites * Sites), conflicts(),
		ycsb(), contended(), writes(), led(), cost(), takeover(), succession(), crowding(),
	}
}
