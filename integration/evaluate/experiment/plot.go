package experiment

import (
	"fmt"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Plot draws the first metric of a figure into a file in a directory, and returns its name: as lines over the points, as bars where
// there is one point only, or as the share of sections by what they took, where that was kept. "": there is nothing to draw.
func (f *Figure) Plot(dir string) (string, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %s, Paxos %s", f.heading(), f.Profile, f.Paxos)
	p.Legend.Top = true
	drawn, err := f.draw(p)
	if err != nil || !drawn {
		return "", err
	}
	name := fmt.Sprintf("%s-%s-%s.svg", f.Name, f.Profile, f.Paxos)
	if err := p.Save(18*vg.Centimeter, 12*vg.Centimeter, filepath.Join(dir, name)); err != nil {
		return "", fmt.Errorf("plot %s: %w", f.Name, err)
	}
	return name, nil
}

// draw chooses the kind of plot.
func (f *Figure) draw(p *plot.Plot) (bool, error) {
	if slices.ContainsFunc(f.Rows, func(r Row) bool { return r.CDF != nil }) {
		return f.drawCDF(p)
	}
	if len(f.Metrics) == 0 {
		return false, nil
	}
	p.Y.Label.Text = f.Metrics[0].heading()
	p.Y.Min = 0
	if len(f.points()) > 1 {
		return f.drawLines(p)
	}
	return f.drawBars(p)
}

// systems are those of the rows that have values, in their order.
func (f *Figure) systems() (all []string) {
	for _, r := range f.Rows {
		if len(r.Values) > 0 && !slices.Contains(all, r.System) {
			all = append(all, r.System)
		}
	}
	return all
}

// drawLines draws a line for each system, through the medians at the points.
func (f *Figure) drawLines(p *plot.Plot) (bool, error) {
	points := slices.DeleteFunc(f.points(), func(x string) bool { return x == "" })
	for i, s := range f.systems() {
		var xy plotter.XYs
		for at, x := range points {
			if v := f.values(s, x, f.Metrics[0].Name); len(v) > 0 {
				xy = append(xy, plotter.XY{X: float64(at), Y: v.Median()})
			}
		}
		if err := line(p, i, s, xy); err != nil {
			return false, err
		}
	}
	p.NominalX(points...)
	return len(f.systems()) > 0, nil
}

// drawCDF draws the share of sections that took no longer, for each system.
func (f *Figure) drawCDF(p *plot.Plot) (bool, error) {
	p.X.Label.Text, p.Y.Label.Text = "ms", "share of sections"
	p.X.Min = 0
	for i, r := range f.Rows {
		var xy plotter.XYs
		for at, ms := range r.CDF {
			xy = append(xy, plotter.XY{X: ms, Y: float64(at) / float64(len(r.CDF)-1)})
		}
		if err := line(p, i, r.System, xy); err != nil {
			return false, err
		}
	}
	return true, nil
}

// line draws one, if it has points.
func line(p *plot.Plot, i int, name string, xy plotter.XYs) error {
	if len(xy) == 0 {
		return nil
	}
	l, dots, err := plotter.NewLinePoints(xy)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	l.Color, l.Dashes = plotutil.Color(i), plotutil.Dashes(i)
	dots.Color, dots.Shape = plotutil.Color(i), plotutil.Shape(i)
	if len(xy) > 50 {
		p.Add(l)
	} else {
		p.Add(l, dots)
	}
	p.Legend.Add(name, l)
	return nil
}

// drawBars draws a bar for each system.
func (f *Figure) drawBars(p *plot.Plot) (bool, error) {
	names := f.systems()
	var values plotter.Values
	for _, s := range names {
		values = append(values, f.values(s, "", f.Metrics[0].Name).Median())
	}
	if len(values) == 0 {
		return false, nil
	}
	bars, err := plotter.NewBarChart(values, vg.Points(20))
	if err != nil {
		return false, fmt.Errorf("plot: %w", err)
	}
	bars.Color = plotutil.Color(0)
	p.Add(bars)
	p.NominalX(names...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 0.5, -1, -0.5
	return true, nil
}
