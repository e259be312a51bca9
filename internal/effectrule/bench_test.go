package effectrule

import "testing"

func BenchmarkJudge(b *testing.B) {
	r, in := compiled(b), Input{Revision: hour(b, "12930.50"), Key: key(b), Nth: 10}
	for b.Loop() {
		if got, err := r.Judge(in); err != nil || !got.Holds {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	d := design(b)
	for b.Loop() {
		if _, found := Compile(d.effect, d.stream, d.job, d.adapter); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
