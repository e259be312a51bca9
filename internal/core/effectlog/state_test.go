package effectlog

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// book applies records one behind the other.
type book struct {
	t    testing.TB
	s    State
	next uint64
}

func (b *book) put(e encoder) Applied {
	b.t.Helper()
	b.next += 8 // a barrier
	a, err := b.s.Apply(Entry{Seq: b.next, Foreign: bytesOf(b.t, e)})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *book) gate(scope Scope, closed bool) Void {
	b.t.Helper()
	return b.put(&Control{Stamp: stamp(fmt.Sprint("g", b.next), b.next), Gate: &Gate{Scope: scope, Closed: closed}}).Void
}

func (b *book) alias(epoch uint64, canonical int, switching bool) Void {
	b.t.Helper()
	return b.put(&Control{Stamp: stamp(fmt.Sprint("a", b.next), b.next), Alias: &Alias{Job: "hourly", Epoch: epoch, Canonical: canonical, Switching: switching}}).Void
}

var sending = Sending{EffectType: "reward", Adapter: "api", Job: "hourly", Generation: 14}

func (b *book) wantGate(want Scope) {
	b.t.Helper()
	if got := b.s.ClosedGate(sending); got != want {
		b.t.Fatalf("closed is %q, want %q", got, want)
	}
}

func opened(t testing.TB) *book {
	b := &book{t: t}
	b.alias(1, 14, false)
	b.wantGate("")
	return b
}

func TestNothingIsSentBeforeTheFirstControl(t *testing.T) {
	b := &book{t: t}
	b.wantGate(Unset)
	b.put(&Command{Stamp: stamp("command", b.next), Key: someKey, Act: ActHold})
	b.put(evidence())
	b.wantGate(Unset)
	if b.gate("type:other", false); b.s.Begun() != 24 {
		t.Fatalf("begun at %d", b.s.Begun())
	}
	b.wantGate(SwitchScope("hourly"))
	b.alias(1, 14, false)
	b.wantGate("")
}

func TestGatesAreEachTheirOwn(t *testing.T) {
	b := opened(t)
	scopes := []Scope{Global, TypeScope("reward"), AdapterScope("api"), GenerationScope("hourly", 14)}
	for _, scope := range scopes {
		b.gate(scope, true)
	}
	for _, other := range []Scope{TypeScope("mail"), AdapterScope("smtp"), GenerationScope("hourly", 13), GenerationScope("daily", 14)} {
		b.gate(other, true)
	}
	for _, scope := range scopes {
		b.wantGate(scope)
		b.gate(scope, false)
	}
	b.wantGate("")
	if n := len(b.s.Gates()); n != 8 {
		t.Fatalf("%d gates are remembered", n)
	}
}

func TestSwitchOpensNoGateThatAnOperatorClosed(t *testing.T) {
	b := opened(t)
	b.gate(GenerationScope("hourly", 14), true)
	b.alias(2, 14, true)
	b.wantGate(GenerationScope("hourly", 14))
	b.gate(GenerationScope("hourly", 14), false)
	b.wantGate(SwitchScope("hourly"))
	b.gate(Global, true)
	b.alias(3, 15, false)
	b.wantGate(Global)
	b.gate(Global, false)
	b.wantGate("")
	if a, _ := b.s.Alias("hourly"); a.Canonical != 15 || a.Epoch != 3 {
		t.Fatalf("alias %+v", a)
	}
}

func TestAliasThatIsNotAboveTheLastIsVoid(t *testing.T) {
	b := opened(t)
	if v := b.alias(5, 15, false); v != "" {
		t.Fatal(v)
	}
	for _, epoch := range []uint64{1, 4, 5} {
		if v := b.alias(epoch, 16, true); v != VoidEpoch {
			t.Fatalf("epoch %d: %q", epoch, v)
		}
	}
	b.wantGate("")
	if a, _ := b.s.Alias("hourly"); a.Canonical != 15 {
		t.Fatalf("alias %+v", a)
	}
}

// An append whose answer was lost writes the same record twice, perhaps with another
// operator's in between: the second copy of a pause must not undo a resume.
func TestSecondCopyOfAControlCountsForNothing(t *testing.T) {
	b := opened(t)
	pause := &Control{Stamp: stamp("pause", b.next), Gate: &Gate{Scope: Global, Closed: true}}
	b.put(pause)
	b.gate(Global, false)
	if a := b.put(pause); a.Void != VoidRepeated || a.Control == nil {
		t.Fatalf("%+v", a)
	}
	b.wantGate("")
}

func TestRecordsThatLandLateOrAheadAreVoid(t *testing.T) {
	b := opened(t)
	pause := &Control{Stamp: stamp("pause", b.next), Gate: &Gate{Scope: Global, Closed: true}}
	b.next += Span
	if a := b.put(pause); a.Void != VoidLate {
		t.Fatalf("%+v", a)
	}
	ahead := &Control{Stamp: stamp("ahead", b.next+9), Gate: &Gate{Scope: Global, Closed: true}}
	if a := b.put(ahead); a.Void != VoidAhead {
		t.Fatalf("%+v", a)
	}
	b.wantGate("")
}

func TestIdsAreForgottenOnceTheirCopiesWouldBeLate(t *testing.T) {
	b := opened(t)
	held := &Command{Stamp: stamp("hold", b.next), Key: someKey, Act: ActHold}
	b.put(held)
	b.next = held.Stamp.Basis + Span - 8
	if a := b.put(held); a.Void != VoidRepeated {
		t.Fatalf("%+v", a)
	}
	b.next += Span
	b.gate(Global, false)
	if len(b.s.seen) != 1 || len(b.s.landed) != 1 {
		t.Fatalf("%d ids are remembered", len(b.s.seen))
	}
	if a := b.put(held); a.Void != VoidLate {
		t.Fatalf("%+v", a)
	}
}

func TestUnreadableRecordClosesEverythingUntilAnOperatorOpensIt(t *testing.T) {
	b := opened(t)
	for _, text := range []string{"", "x", "{}", `{"schema":"effectControl.v2"}`, `{"schema":"effectControl.v1","gate":{"scope":"all"}}`} {
		b.next++
		a, err := b.s.Apply(Entry{Seq: b.next, Foreign: []byte(text)})
		if err != nil || a.Void != VoidUnreadable || a.Why == nil {
			t.Fatalf("%q: %+v, %v", text, a, err)
		}
		if b.s.Unreadable() != b.next {
			t.Fatalf("%q: closed at %d", text, b.s.Unreadable())
		}
		b.wantGate(Unreadable)
		b.gate(Global, false)
		b.wantGate(Unreadable)
		b.gate(Unreadable, false)
		b.wantGate("")
	}
}

func TestUnreadableCommandOrReceiptClosesNothing(t *testing.T) {
	b := opened(t)
	for _, schema := range []string{CommandSchema, EvidenceSchema} {
		b.next++
		a, err := b.s.Apply(Entry{Seq: b.next, Foreign: []byte(`{"schema":"` + schema + `"}`)})
		if err != nil || a.Void != VoidUnreadable {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	b.wantGate("")
	if len(b.s.Asked()) != 0 {
		t.Fatalf("%+v", b.s.Asked())
	}
}

func TestCommandsAreAnsweredOnce(t *testing.T) {
	b := opened(t)
	b.put(&Command{Stamp: stamp("hold", b.next), Key: someKey, Act: ActHold})
	command := b.next
	b.put(evidence())
	receipt := b.next
	if asked := b.s.Asked(); len(asked) != 2 || asked[0].Seq != command || asked[1].Seq != receipt || asked[1].Key() != someKey {
		t.Fatalf("%+v", asked)
	}
	commit := func(answers ...*Done) error {
		e := Entry{Seq: b.next + 1}
		for _, d := range answers {
			e.Records = append(e.Records, bytesOf(t, d))
		}
		a, err := b.s.Apply(e)
		if err == nil {
			b.next++
			if len(a.Done) != len(answers) {
				t.Fatalf("%+v", a)
			}
		}
		return err
	}
	answer := &Done{Sequence: command, Key: someKey, Step: 2}
	for name, wrong := range map[string][]*Done{
		"twice in one commit": {answer, answer},
		"another key":         {{Sequence: command, Key: someKey2, Step: 2}},
		"nothing there":       {{Sequence: command - 1, Key: someKey}},
	} {
		if err := commit(wrong...); err == nil || len(b.s.Asked()) != 2 {
			t.Fatalf("%s: %v, %+v", name, err, b.s.Asked())
		}
	}
	if err := commit(answer); err != nil {
		t.Fatal(err)
	}
	if asked := b.s.Asked(); len(asked) != 1 || asked[0].Seq != receipt {
		t.Fatalf("%+v", asked)
	}
	if err := commit(answer); err == nil {
		t.Fatal("answered twice")
	}
}

var someKey2 = func() (k [32]byte) { k[0] = 9; return k }()

func TestEntriesComeInOrder(t *testing.T) {
	b := opened(t)
	for _, seq := range []uint64{0, b.next - 1, b.next} {
		if _, err := b.s.Apply(Entry{Seq: seq}); err == nil {
			t.Errorf("sequence %d is taken behind %d", seq, b.next)
		}
	}
	if _, err := b.s.Apply(Entry{Seq: b.next + 1, Records: [][]byte{[]byte("{}")}}); err == nil || b.s.Last() != b.next {
		t.Errorf("a record that cannot be read: %v, last %d", err, b.s.Last())
	}
}

// drawn makes a record out of few scopes, jobs, ids and bases, so that they meet.
func drawn(t *rapid.T, last uint64) encoder {
	s := stamp(fmt.Sprint("id", rapid.IntRange(0, 30).Draw(t, "id")), last-min(last, rapid.SampledFrom([]uint64{0, 8, Span, Span + 9}).Draw(t, "age")))
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		scope := rapid.SampledFrom([]Scope{Global, TypeScope("reward"), AdapterScope("api"), GenerationScope("hourly", 14), TypeScope("mail")}).Draw(t, "scope")
		return &Control{Stamp: s, Gate: &Gate{Scope: scope, Closed: rapid.Bool().Draw(t, "closed")}}
	case 1:
		return &Control{Stamp: s, Alias: &Alias{
			Job: "hourly", Epoch: rapid.Uint64Range(1, 9).Draw(t, "epoch"),
			Canonical: rapid.IntRange(13, 15).Draw(t, "canonical"), Switching: rapid.Bool().Draw(t, "switching"),
		}}
	case 2:
		return &Command{Stamp: s, Key: someKey, Act: ActHold}
	}
	return evidence()
}

// The fold is held against the rules read one by one over the whole journal.
func TestStateIsWhatTheJournalSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		last := uint64(0)
		ids := map[string]bool{}
		gates := map[Scope]bool{}
		var alias Alias
		begun, asked := false, 0
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			record := drawn(t, last)
			data, err := record.Encode()
			if err != nil {
				t.Fatal(err)
			}
			last += rapid.SampledFrom([]uint64{1, 8, 9, Span / 2}).Draw(t, "step")
			if _, err := s.Apply(Entry{Seq: last, Foreign: data}); err != nil {
				t.Fatal(err)
			}
			counts := func(by Stamp) bool {
				if ids[by.ID] && last-by.Basis <= Span || by.Basis >= last || last-by.Basis > Span {
					return false
				}
				ids[by.ID] = true
				return true
			}
			switch r := record.(type) {
			case *Evidence:
				asked++
			case *Command:
				if counts(r.Stamp) {
					asked++
				}
			case *Control:
				switch {
				case !counts(r.Stamp):
				case r.Gate != nil:
					gates[r.Gate.Scope], begun = r.Gate.Closed, true
				case r.Alias.Epoch > alias.Epoch:
					alias, begun = *r.Alias, true
				}
			}
			// An id may be used again once no copy of its record can count.
			for _, id := range sortedKeys(ids) {
				if _, known := s.seen[id]; !known {
					delete(ids, id)
				}
			}
		}
		want := Scope("")
		switch {
		case !begun:
			want = Unset
		case gates[Global]:
			want = Global
		case gates[TypeScope("reward")]:
			want = TypeScope("reward")
		case gates[AdapterScope("api")]:
			want = AdapterScope("api")
		case gates[GenerationScope("hourly", 14)]:
			want = GenerationScope("hourly", 14)
		case alias.Epoch == 0 || alias.Switching:
			want = SwitchScope("hourly")
		}
		if got := s.ClosedGate(sending); got != want {
			t.Fatalf("closed is %q, want %q", got, want)
		}
		if a, _ := s.Alias("hourly"); a.Alias != alias || len(s.Asked()) != asked {
			t.Fatalf("alias %+v, want %+v; %d asked, want %d", a, alias, len(s.Asked()), asked)
		}
	})
}

func sortedKeys(m map[string]bool) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}

// A record written once, and then as often and as late as the network likes, is a record
// written once.
func TestCopiesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type written struct {
			data []byte
			evid bool
		}
		var all []written
		var once, often State
		seq := uint64(0)
		for i := range rapid.IntRange(1, 40).Draw(t, "records") {
			record := drawn(t, seq)
			switch r := record.(type) {
			case *Control:
				r.Stamp = stamp(fmt.Sprint("own", i), seq)
			case *Command:
				r.Stamp = stamp(fmt.Sprint("own", i), seq)
			}
			data, err := record.Encode()
			if err != nil {
				t.Fatal(err)
			}
			_, isEvidence := record.(*Evidence)
			all = append(all, written{data, isEvidence})
			seq += rapid.SampledFrom([]uint64{8, Span / 3}).Draw(t, "step")
			_, err = once.Apply(Entry{Seq: seq, Foreign: data})
			_, err2 := often.Apply(Entry{Seq: seq, Foreign: data})
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if late := rapid.SampledFrom(all).Draw(t, "copy"); !late.evid {
				seq += rapid.SampledFrom([]uint64{8, Span / 3, 2 * Span}).Draw(t, "delay")
				a, err := often.Apply(Entry{Seq: seq, Foreign: late.data})
				_, err2 := once.Apply(Entry{Seq: seq})
				if err != nil || err2 != nil || a.Void == "" {
					t.Fatalf("%+v, %v, %v", a, err, err2)
				}
			}
		}
		one, err := json.Marshal(&once)
		many, err2 := json.Marshal(&often)
		if err != nil || err2 != nil || string(one) != string(many) {
			t.Fatalf("%s\n%s\n%v %v", one, many, err, err2)
		}
		// And a checkpoint is the state.
		var back State
		if err := json.Unmarshal(many, &back); err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(&back); err != nil || string(text) != string(many) {
			t.Fatalf("%s\n%s\n%v", text, many, err)
		}
	})
}
