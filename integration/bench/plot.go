package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// plot draws the CPU of a request in each work, relay and proxy side by side.
func (r report) plot(path string) error {
	p := plot.New()
	p.Title.Text = "Processor time of a forwarded request, " + r.Machine
	p.Y.Label.Text = "µs"
	var names []string
	bars := map[string]plotter.Values{}
	for _, c := range r.Comparisons {
		names = append(names, c.Work)
		for _, m := range c.Targets {
			if len(m.CPU) > 0 {
				bars[m.Target] = append(bars[m.Target], m.CPU.median())
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	const width = vg.Length(9)
	for i, target := range []string{"relay", "proxy"} {
		b, err := plotter.NewBarChart(bars[target], width)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		b.Offset, b.Color = width*vg.Length(i)-width/2, plotutil.Color(i)
		p.Add(b)
		p.Legend.Add(target, b)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.NominalX(names...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 1.2, -1, -0.5
	if err := p.Save(vg.Length(max(6, len(names)))*vg.Centimeter, 14*vg.Centimeter, path); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}
