package policy

import (
	"slices"
	"strings"
)

// didYouMean answers " (did you mean X?)" for the known word nearest to text, or "" when
// none is near.
func didYouMean(text string, known []string) string {
	best, bestDistance := "", len(text)/3+2
	for _, word := range known {
		distance := editDistance(strings.ToLower(text), strings.ToLower(word))
		if distance < bestDistance {
			best, bestDistance = word, distance
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours. Long
// words are near nothing.
func editDistance(a, b string) int {
	const far = 1 << 10
	if len(a) > 64 || len(b) > 64 {
		return far
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// oneOf writes the choices of a message: "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// sorted answers the words in order, leaving the argument alone.
func sorted(words []string) []string {
	out := slices.Clone(words)
	slices.Sort(out)
	return out
}
