package main

import (
	"fmt"
	"strings"
	"time"
)

// Geometry of the picture.
const (
	width, height     = 860, 300
	left, right       = 60, 20
	top, bottom       = 64, 66
	plotW, plotH      = width - left - right, height - top - bottom
	ink, bar, killInk = "#1f2933", "#2f7d5b", "#c0392b"
)

// svg draws the rate over time, the kills, and the sum below.
func (r *recording) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" role="img" aria-label="%s">`,
		width, height, r.sum())
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="16" font-weight="600" fill="%s">Leaders killed with SIGKILL while 32 goroutines count</text>`, left, ink)
	r.bars(&b)
	r.axis(&b)
	for i := range r.kills {
		r.kill(&b, i)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="14" fill="%s">%s</text></svg>`+"\n", left, height-14, ink, r.sum())
	return b.String()
}

func (r *recording) sum() string {
	verdict := "no duplicate, none lost"
	if r.final != r.acknowledged {
		verdict = "NOT EXACT"
	}
	return fmt.Sprintf("%d acknowledged, %d of them by a stored answer. The counter says %d: %s.",
		r.acknowledged, r.replayed, r.final, verdict)
}

func (r *recording) highest() int64 {
	most := int64(1)
	for _, n := range r.rates {
		most = max(most, n)
	}
	return most
}

func (r *recording) x(d time.Duration) float64 {
	return left + float64(plotW)*float64(d)/float64(sample*time.Duration(len(r.rates)))
}

func (r *recording) bars(b *strings.Builder) {
	most := r.highest()
	w := float64(plotW) / float64(len(r.rates))
	for i, n := range r.rates {
		h := float64(plotH) * float64(n) / float64(most)
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`,
			r.x(time.Duration(i)*sample), top+plotH-h, w*0.85, h, bar)
	}
}

func (r *recording) axis(b *strings.Builder) {
	perSecond := r.highest() * int64(time.Second/sample)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="12" fill="%s" text-anchor="end">%d/s</text>`, left-6, top+10, ink, perSecond)
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s"/>`, left, top+plotH, width-right, top+plotH, ink)
	for s := time.Duration(0); s <= sample*time.Duration(len(r.rates)); s += 5 * time.Second {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="12" fill="%s" text-anchor="middle">%d s</text>`, r.x(s), top+plotH+18, ink, int(s.Seconds()))
	}
}

func (r *recording) kill(b *strings.Builder, i int) {
	x := r.x(r.kills[i])
	fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>`, x, top-8, x, top+plotH, killInk)
	fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="12" fill="%s" text-anchor="middle">%s killed</text>`, x, top-14, killInk, r.killed[i])
}
