package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// plots draws the report into files with a common prefix: what is forwarded, and what was done on a
// real node.
func (r report) plots(prefix string) error {
	if err := r.plotForwarded(prefix + ".svg"); err != nil {
		return err
	}
	return r.plotNode(prefix + "-locks.svg")
}

// plotForwarded draws the CPU of a request in each work, relay and proxy side by side.
func (r report) plotForwarded(path string) error {
	var names []string
	bars := map[string]plotter.Values{}
	for _, c := range r.Comparisons {
		names = append(names, c.Work)
		for _, m := range c.Targets {
			bars[m.Target] = append(bars[m.Target], m.CPU.median())
		}
	}
	p := plot.New()
	p.Title.Text = "Processor time of a forwarded request, " + r.Machine
	p.Y.Label.Text = "µs"
	return drawn(p, names, []string{"relay", "proxy"}, bars, path)
}

// plotNode draws the throughput of each way to write a key, relative to the plain write, for each
// number of clients.
func (r report) plotNode(path string) error {
	var names, works []string
	bars := map[string]plotter.Values{}
	for i, c := range r.Node {
		works = append(works, c.Work)
		for _, m := range c.Targets {
			if i == 0 {
				names = append(names, m.Target)
			}
			bars[c.Work] = append(bars[c.Work], c.share(m.Target).median())
		}
	}
	p := plot.New()
	p.Title.Text = "Throughput beside a plain write through the proxy, " + r.Machine
	return drawn(p, names, works, bars, path)
}

// drawn draws bars into a file, one of each kind for each name. Without bars it draws nothing.
func drawn(p *plot.Plot, names, kinds []string, bars map[string]plotter.Values, path string) error {
	if len(names) == 0 {
		return nil
	}
	const width = vg.Length(9)
	for i, kind := range kinds {
		b, err := plotter.NewBarChart(bars[kind], width)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		b.Offset, b.Color = width*vg.Length(i)-width/2, plotutil.Color(i)
		p.Add(b)
		p.Legend.Add(kind, b)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.NominalX(names...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 1.2, -1, -0.5
	if err := p.Save(vg.Length(max(6, len(names)))*vg.Centimeter, 14*vg.Centimeter, path); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
