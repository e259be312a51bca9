package failpoint

// Point is one place where a process can be made to die, fail or stop.
type Point struct {
	Name  string // service/step
	After string // what was done last when it is hit
	// Needs arms other points so that the loop comes by here at all, in the form of
	// Variable; "" when the usual course does.
	Needs string
	// Without names a part of the data directory that must be lost for it; "" for none.
	Without string
}

// Points lists every point, in the order in which the loops come by. A test compares the
// list with the code, the sweep in tests/ runs each of them.
func Points() []Point {
	var all []Point
	for _, of := range [][]Point{ingest(), windower(), projector(), journal()} {
		all = append(all, of...)
	}
	return all
}

func ingest() []Point {
	return []Point{
		{Name: "ingest/leased", After: "the lease of a source partition is held"},
		{Name: "ingest/before-claim", After: "the last record of the sources journal was read"},
		{Name: "ingest/after-claim", After: "the claim is in the sources journal"},
		{Name: "ingest/resume-asked", After: "a sender asked how far its file is, and a cut was made for it"},
		{Name: "ingest/after-validate", After: "admission decided every event of a request"},
		{Name: "ingest/quarantine-write", After: "a refused event is about to join a quarantine batch"},
		{Name: "ingest/frame-built", After: "a frame has its number and was not sent"},
		{Name: "ingest/after-publish", After: "a frame was sent"},
		{Name: "ingest/before-puback-seen", After: "a frame is acknowledged and nobody was told"},
		{Name: "ingest/quarantine-built", After: "a quarantine batch is complete and was not sent"},
		{Name: "ingest/quarantine-published", After: "a quarantine batch was sent"},
		{Name: "ingest/before-quarantine-puback-seen", After: "a quarantine batch is acknowledged and nobody was told"},
		{Name: "ingest/before-reply", After: "every event of a request is durable and its sender was not told"},
		{Name: "ingest/after-cut", After: "a cut noted every source partition and sealed every frame"},
		{Name: "ingest/before-finish", After: "a finished source partition is durable and its checkpoint does not say so"},
		{Name: "ingest/before-mark", After: "all up to the cut is durable"},
		{Name: "ingest/after-mark", After: "the marks are in every events journal"},
		{Name: "ingest/before-checkpoint", After: "a source partition moved"},
		{Name: "ingest/after-checkpoint", After: "the checkpoint is in the sources journal"},
		{Name: "ingest/last-checkpoint", After: "the last marks were written on the way out"},
	}
}

func windower() []Point {
	return []Point{
		{Name: "windower/leased", After: "the lease of a key partition is held"},
		{Name: "windower/checkpoint-opened", After: "the checkpoint file is open"},
		{Name: "windower/claimed", After: "the claim is in the windows journal"},
		{Name: "windower/events-checked", After: "the events journal is the one that was read before"},
		{Name: "windower/restored", After: "the operator stands where the checkpoint does"},
		{Name: "windower/before-replay", After: "a COMMIT of the windows journal was read and its events were not"},
		{Name: "windower/after-replay", After: "the core gave the records that the COMMIT names"},
		{Name: "windower/recovery-checkpoint", After: "a checkpoint of the recovery is due"},
		{Name: "windower/recovered", After: "the operator stands at the last COMMIT"},
		{Name: "windower/after-fetch", After: "a frame was read"},
		{Name: "windower/after-decide", After: "the core took the frame in"},
		{Name: "windower/on-idle", After: "nothing is at hand"},
		{Name: "windower/before-commit", After: "a commit is due"},
		{Name: "windower/after-submit", After: "records and COMMIT were handed to the journal"},
		{Name: "windower/checkpoint-taken", After: "what changed up to a COMMIT in flight was copied"},
		{Name: "windower/after-commit", After: "the COMMIT was accepted"},
		{Name: "windower/before-checkpoint", After: "the COMMIT of a checkpoint was accepted"},
		{Name: "windower/in-checkpoint", After: "the checkpoint's transaction holds the state and not its COMMIT"},
		{Name: "windower/after-checkpoint", After: "the checkpoint is on disk"},
		{Name: "windower/before-snapshot", After: "a snapshot is written beside the checkpoint and not uploaded"},
		{Name: "windower/snapshot-uploaded", After: "a snapshot was uploaded and read back, and nobody knows of it"},
		{Name: "windower/after-snapshot", After: "the pointer names the snapshot"},
		{Name: "windower/snapshot-fetched", After: "a snapshot was downloaded for lost files", Without: "windower"},
		{Name: "windower/snapshot-filled", After: "the checkpoint file holds the snapshot and not its COMMIT", Without: "windower"},
		{Name: "windower/before-drain", After: "the process was asked to end"},
		{Name: "windower/drained", After: "everything decided is committed on the way out"},
	}
}

func projector() []Point {
	return []Point{
		{Name: "projector/view-opened", After: "the view's file is open"},
		{Name: "projector/following", After: "the revisions stream is the one that the view was made from"},
		{Name: "projector/catch-up", After: "a whole batch of the revisions stream was read"},
		{Name: "projector/leased", After: "the lease of a key partition is held and the view caught up"},
		{Name: "projector/claimed", After: "the claim is on the fence"},
		{Name: "projector/claim-seen", After: "the view reaches up to the claim"},
		{Name: "projector/after-fetch", After: "an entry of the windows journal was read"},
		{Name: "projector/after-decide", After: "every proposal of the entry was judged"},
		{Name: "projector/before-cas", After: "a batch is due"},
		{Name: "projector/after-cas", After: "the batch was accepted and the view does not show it"},
		{Name: "projector/after-apply", After: "the view shows the batch"},
		{Name: "projector/before-view", After: "the view's file is about to be written"},
		{Name: "projector/in-view", After: "the view's transaction holds the rows and not how far they reach"},
		{Name: "projector/after-view", After: "the view's file is on disk"},
		{Name: "projector/before-drain", After: "the process was asked to end"},
	}
}

func journal() []Point {
	const (
		answersLost = "journal/before-answer=error@1;journal/before-answer=error@2"
		batchesLost = "journal/after-batch=error@1;journal/after-batch=error@2"
	)
	return []Point{
		{Name: "journal/before-claim", After: "the tail was read for a claim"},
		{Name: "journal/mid-barrier", After: "a claim's barrier was sent but for its last message"},
		{Name: "journal/after-claim", After: "a claim was accepted and its claimer does not know"},
		{Name: "journal/before-append", After: "a commit has its expectation"},
		{Name: "journal/after-append", After: "a commit was sent"},
		{Name: "journal/before-answer", After: "the answer to a commit came and was not looked at"},
		{Name: "journal/settling", After: "the outcome of commits in flight is unknown", Needs: answersLost},
		{Name: "journal/settled", After: "the tail told which commits in flight were accepted", Needs: answersLost},
		{Name: "journal/before-batch", After: "a batch has its expectation"},
		{Name: "journal/mid-batch", After: "a batch was sent but for its COMMIT"},
		{Name: "journal/after-batch", After: "a batch was accepted and its writer does not know"},
		{Name: "journal/fence-settling", After: "the outcome of a batch is unknown", Needs: batchesLost},
		{Name: "journal/before-feed", After: "the stream's identity was checked"},
		{Name: "journal/before-delivery", After: "a message was read and not handed on"},
		{Name: "journal/after-delivery", After: "a message was handed on"},
	}
}

// EffectPoints lists the effector's points. The usual workload has no effects, so that a
// sweep of its own runs them.
func EffectPoints() []Point {
	return []Point{
		{Name: "effector/leased", After: "the lease of a key partition is held"},
		{Name: "effector/claimed", After: "the claim is in the effects journal"},
		{Name: "effector/catch-up", After: "messages of the effects journal were read and are not in the view"},
		{Name: "effector/before-judge", After: "a batch of revisions arrived"},
		{Name: "effector/before-commit", After: "effects were judged, answers and commands taken in"},
		{Name: "effector/before-dispatch", After: "every revision was judged, and attempts were decided"},
		{Name: "effector/dispatched", After: "the DISPATCHING records are accepted and not in the dispatch file"},
		{Name: "effector/after-file", After: "the attempts are in the dispatch file, and nothing was sent"},
		{Name: "effector/first-byte", After: "a connection is about to write its first byte"},
		{Name: "effector/response", After: "the provider answered and nobody knows"},
		{Name: "effector/before-ack", After: "an answer is about to become a record"},
	}
}
