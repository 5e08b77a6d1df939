/*
 * The protocol of csi-fencepost for one volume with a single writer. docs/design/model.md
 * says what it covers and what not, and transitions.tsv which function of the
 * product each inline stands for (a test holds them together).
 *
 *   attacher's calls ─▶ Replica 0, Replica 1 ─▶ driver
 *                         │ survey, judge        World: machines, kubelets, the
 *                         ▼                      attach-detach controller, agents,
 *                       ledger (compare-and-swap) an operator
 *
 * -DFAULTS=n  how many faults a schedule has, of any kind
 * -DMOVES=n   how often the pod is moved to the next node
 * -DNODES=n   2 or 3
 * -DPOWER -DLINK -DKUBELET -DDRIVER -DCRASHES -DSTRIP
 *             what may go wrong: machines lose power and come back; nodes fall
 *             silent and write on; kubelets restart, out-of-service taints on living
 *             nodes; the driver's answers; replicas die; a person takes a finalizer off
 * -DUNUSED    the pod has not run anywhere yet; else it runs on node 0
 * -DSTRAYS    any call at any time, not only those that the attacher has to make
 * -DSPLIT     a survey reads in three steps, not in one
 * -DLIVE      look for dead ends instead (see the end of this file)
 * -DNO_...    a guard of the product is taken out
 * -DMAY_...   something happens that the product assumes not to happen
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef REPLICAS
#define REPLICAS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef MOVES
#define MOVES 1
#endif

/* States of a ledger entry (fence.State). */
#define ABSENT     0
#define PUBLISHING 1
#define HELD       2
#define LEAVING    3
#define RELEASED   4
#define TAKENOVER  5

/* A VolumeAttachment: none, not attached yet, attached, being deleted. */
#define NOVA     0
#define WAITING  1
#define ATTACHED 2
#define DELETED  3

/* Calls and verdicts. */
#define PUBLISH   1
#define UNPUBLISH 2

#define REFUSE  0
#define FORWARD 1 /* the driver is called, nothing is written */
#define TAKE    2 /* unpublish other holders first */
#define RECORD  3
#define LEAVE   4
#define ANSWER  5
#define CONTEST 6
#define AGAIN   7
#define FINISH  8

#define NOBODY 3

typedef Node {
	bit on;        /* has power */
	bit link;      /* reaches the API server */
	bit mounted;   /* a container can write to the volume */
	bit tracked;   /* the kubelet knows that it uses it */
	bit reported;  /* this kubelet has reported it in use */
	bit pub;       /* the driver has it published here */
	bit latePub;   /* the driver still works on a publish, or an unpublish, */
	bit lateUnpub; /*   whose caller was told of an error */
	bit taint;     /* out-of-service */
	/* what the API server has of it */
	bit inUse;     /* volumesInUse */
	bit listed;    /* volumesAttached */
	bit detaching; /* the controller took it off, and looks once more */
	bit stale;     /* its lease was unchanged for suspectAfter */
	bit unknown;   /* Ready is Unknown */
	bit again;     /* Ready changed after the VolumeAttachment was deleted, */
	bit heard;     /*   or the kubelet said anything since */
	bit letGo;     /* the kubelet let go while it was in volumesAttached */
	bit proof;     /* evidence is written down that it is off, */
	bit unchanged; /*   and its lease has not changed since */
	unsigned proofBoot : 2; /* and it is of this boot */
	unsigned boot : 2;
	unsigned apiBoot : 2; /* the boot ID in its Node */
	unsigned va : 2
};

typedef Entry {
	unsigned st : 3;
	unsigned token : 3;
	unsigned boot : 2;
	bit contested;
	bit seen; /* the kubelet, Ready as it is still, listed it since */
	unsigned contestBoot : 2
};

/* What one survey saw of a node. */
typedef Seen {
	unsigned va : 2;
	unsigned boot : 2;
	bit inUse;
	bit listed;
	bit released;
	bit proof;
	bit still; /* NO_REREAD: silent, and its lease as bound, at the first look */
	bit todo;  /* this very call is about to unpublish it */
	unsigned done : 3 /* it was, under this token */
};

typedef Call {
	unsigned op : 2;
	unsigned node : 2;
	unsigned verdict : 4;
	unsigned token : 3;
	bit fresh;   /* the ledger is what was read */
	bit ready;   /* the node was Ready, and is so still */
	bit fenced;  /* judged so, not released */
	bit known;   /* somebody names it as a holder */
	bit answer;  /* taken over and nothing more */
	bit over;    /* another call ended a publication since, and no write has noticed */
	bit booted;  /* a machine has booted since */
	unsigned was : 3;     /* the entry as it was read */
	unsigned wasToken : 3
};

typedef Survey { Seen at[NODES] };

Node   n[NODES];
Entry  ledger[NODES];
Call   call[REPLICAS];
Survey saw[REPLICAS];

unsigned want : 2;   /* the node that the pod is on */
byte moves  = MOVES;
byte faults = FAULTS;

/* The agents' question under way: of which node, and what was seen before it. */
unsigned asked : 2 = NOBODY;
bit askedSame;
bit readOff;
bit hasRead;
unsigned askedBoot : 2;

/* Counters within a step: between steps they are 0. */
byte i;
byte j;
byte k;
byte t;
byte ok;

#define TIDY i = 0; j = 0; k = 0; t = 0; ok = 0

#define writes(x) (n[x].on && n[x].mounted)

/* R1: no node is given the volume while another can write to it. */
inline holdsR1(x)
{
	i = 0;
	do
	:: i < NODES -> assert(i == x || !writes(i)); i++
	:: else -> break
	od;
	i = 0
}

/* Looking for dead ends, there are only the calls that the attacher makes, and
 * one that was refused comes again only after something has changed: else its
 * retries would never end. */
#ifdef LIVE
#define BIT(what, x)     (1 << (2 * (x) + (what) - 1))
#define UNTRIED(what, x) ((tried & BIT(what, x)) == 0 && n[x].va == (what == PUBLISH -> WAITING : DELETED))
#define BEGINS           quiet[me] = 1
#define REFUSED          tried = (quiet[me] -> tried | BIT(call[me].op, call[me].node) : tried)
#if REPLICAS > 1
#define NEWS             tried = 0; quiet[0] = 0; quiet[1] = 0
#else
#define NEWS             tried = 0; quiet[0] = 0
#endif
byte tried;
bit quiet[REPLICAS];
#else
#ifdef STRAYS
#define UNTRIED(what, x) 1
#else
#define UNTRIED(what, x) (n[x].va == (what == PUBLISH -> WAITING : DELETED))
#endif
#define BEGINS           skip
#define REFUSED          skip
#define NEWS             skip
#endif

/* A write is held against what was read. */
#ifdef NO_SWAP
#define ISFRESH(r) (1)
#else
#define ISFRESH(r) (call[r].fresh)
#endif
#define FRESH ISFRESH(me)

/* ---- the ledger ------------------------------------------------------- */

/* Somebody has written: what the others have read is old. */
inline changed()
{
	NEWS;
	i = 0;
	do
	:: i < REPLICAS -> call[i].fresh = 0; i++
	:: else -> break
	od;
	i = 0
}

/* A token that nobody has. */
inline newToken()
{
	t = 1;
	do
	:: t < 8 ->
		ok = 1;
		i = 0;
		do
		:: i < NODES ->
			ok = ok && ledger[i].token != t;
			j = 0;
			do
			:: j < REPLICAS -> ok = ok && saw[j].at[i].done != t && call[j].token != t; j++
			:: else -> break
			od;
			i++
		:: else -> break
		od;
		if
		:: ok -> break
		:: else -> t++
		fi
	:: else -> break
	od;
	assert(t < 8)
}

inline wipe(x)
{
	ledger[x].st = ABSENT; ledger[x].token = 0; ledger[x].boot = 0;
	ledger[x].contested = 0; ledger[x].seen = 0; ledger[x].contestBoot = 0
}

/* A publication ends, or one begins from nothing, while other calls last. */
inline overtakes()
{
	i = 0;
	do
	:: i < REPLICAS -> call[i].over = call[i].over || (i != me && call[i].op != 0); i++
	:: else -> break
	od;
	i = 0
}

inline cutEntry(x, theirs)
{
	if
	:: ledger[x].token == theirs && ledger[x].st != ABSENT -> wipe(x); overtakes(); changed()
#ifdef NO_TOKEN
	:: ledger[x].token != theirs && ledger[x].st != ABSENT -> wipe(x); changed()
#endif
	:: else -> skip
	fi;
	i = 0
}

inline markTaken(x, theirs)
{
	if
	:: ledger[x].token == theirs && ledger[x].st != ABSENT ->
		ledger[x].st = TAKENOVER;
		ledger[x].contested = 0; ledger[x].seen = 0; ledger[x].contestBoot = 0;
		overtakes();
		changed()
	:: else -> skip
	fi;
	i = 0
}

/* Its unpublish is about to be forwarded. What the kubelet released stays so. */
inline putLeaving(r, x, isReleased)
{
	if
	:: ledger[x].st == ABSENT || ledger[x].st == TAKENOVER ->
		newToken();
		wipe(x);
		ledger[x].token = t; ledger[x].boot = saw[r].at[x].boot
	:: else -> skip
	fi;
	if
	:: isReleased ->
		ledger[x].st = RELEASED;
		ledger[x].contested = 0; ledger[x].seen = 0; ledger[x].contestBoot = 0
	:: else -> ledger[x].st = LEAVING
	fi;
	i = 0
}

/* ---- what one holder's facts amount to -------------------------------- */

/* The kubelet's "not in use" is not believed. Sets ok. */
inline contestedNow(x)
{
	if
#ifndef NO_CONTEST
	:: ledger[x].contested && ledger[x].contestBoot == n[x].apiBoot ->
		ok = (n[x].taint && !n[x].stale) || n[x].unknown || !ledger[x].seen || n[x].inUse
	:: ledger[x].contested && ledger[x].contestBoot != n[x].apiBoot -> ok = 0
	:: !ledger[x].contested ->
		ok = (n[x].taint && !n[x].stale) ||
			(n[x].va == DELETED && ledger[x].st != RELEASED && !(n[x].letGo && !n[x].stale) && (n[x].unknown && n[x].heard || !n[x].unknown && n[x].again))
#else
	:: ok = 0
#endif
	fi
}

/* Lists the volume, so that a takenOver entry is not the last word. */
#define observed(r, x) (saw[r].at[x].listed)

#define holder(r, x) \
	((ledger[x].st != ABSENT && (ledger[x].st != TAKENOVER || observed(r, x))) || \
	 (ledger[x].st == ABSENT && (saw[r].at[x].va != NOVA || saw[r].at[x].inUse || saw[r].at[x].listed)))

#ifdef NO_REREAD
#define stillSilent(r, x) (saw[r].at[x].still)
#else
#define stillSilent(r, x) (n[x].stale && n[x].unchanged)
#endif

/* fenced: proof that holds now, of a silent node that does not list it. */
#define proven(r, x) (saw[r].at[x].proof && stillSilent(r, x))
#ifdef NO_LISTED
#define fencedNow(r, x) proven(r, x)
#else
#define fencedNow(r, x) (proven(r, x) && !saw[r].at[x].listed)
#endif
#define gone(r, x) (saw[r].at[x].released || fencedNow(r, x))

#ifdef NO_WANTED
#define kept(r, x) (0)
#else
#define kept(r, x) \
	((saw[r].at[x].va == ATTACHED || (saw[r].at[x].va == WAITING && ledger[x].st == PUBLISHING)))
#endif
#define wanted(r, x) (kept(r, x) && !n[x].stale)

/* The product assumes that a call does not last so long that a machine boots and
 * a container starts on it; nor, from its last write to the driver's answer (from
 * its first read, where it has nothing to write), so long that another replica
 * ends what was published, publishes anew, and a container starts. */
#ifdef MAY_STALL
#define nobodyStalls 1
#elif REPLICAS > 1
#define nobodyStalls (!call[0].over && !call[1].over && !call[0].booted && !call[1].booted)
#else
#define nobodyStalls (!call[0].over && !call[0].booted)
#endif

/* ---- a survey, in the order in which it reads -------------------------- */

inline readAttachments(r)
{
	i = 0;
	do
	:: i < NODES -> saw[r].at[i].va = n[i].va; saw[r].at[i].todo = 0; i++
	:: else -> break
	od;
	i = 0
}

inline readLedger(r)
{
	call[r].fresh = 1;
	call[r].answer = ledger[call[r].node].st == TAKENOVER;
	call[r].known = ledger[call[r].node].st != ABSENT;
	call[r].was = ledger[call[r].node].st;
	call[r].wasToken = ledger[call[r].node].token
}

/* The live Nodes, and what is written down of each. */
inline readNodes(r)
{
	i = 0;
	do
	:: i < NODES ->
		saw[r].at[i].inUse = n[i].inUse;
		saw[r].at[i].listed = n[i].listed;
		saw[r].at[i].boot = n[i].apiBoot;
		contestedNow(i);
		saw[r].at[i].released = !n[i].inUse && !n[i].listed && !ok;
#ifdef NO_BOOT
		saw[r].at[i].proof = n[i].proof;
#else
		saw[r].at[i].proof = n[i].proof && n[i].proofBoot == n[i].apiBoot;
#endif
#ifdef NO_REREAD
		saw[r].at[i].still = n[i].stale && n[i].unchanged;
#endif
		i++
	:: else -> break
	od;
	i = call[r].node;
	call[r].ready = !n[i].unknown;
	call[r].known = call[r].known || saw[r].at[i].va != NOVA || saw[r].at[i].inUse || saw[r].at[i].listed
}

/* abandonedAfter is longer than any call that another process has under way. */
#if REPLICAS > 1
#define othersDone(r) (call[1 - r].op == 0)
#else
#define othersDone(r) 1
#endif

/* ---- the decision ------------------------------------------------------ */

inline judgePublish(r, x)
{
	if
#ifndef NO_ABORT
	:: ledger[x].st == LEAVING || ledger[x].st == RELEASED || saw[r].at[x].va == DELETED ->
		call[r].verdict = REFUSE; /* ABORTED */
		if
		:: (ledger[x].st == LEAVING || ledger[x].st == RELEASED) && saw[r].at[x].va == WAITING && othersDone(r) && gone(r, x) ->
			call[r].verdict = FINISH; call[r].fenced = !saw[r].at[x].released
		:: else -> skip
		fi
#endif
	:: else ->
		if
		:: proven(r, x) -> call[r].verdict = REFUSE
		:: else ->
			call[r].verdict = RECORD;
			i = 0;
			do
			:: i < NODES ->
				if
#ifdef NO_HOLDERS
				:: 1 -> skip
#else
				:: i == x || !holder(r, i) -> skip
				:: i != x && holder(r, i) && (!gone(r, i) || wanted(r, i)) -> call[r].verdict = REFUSE
				:: i != x && holder(r, i) && gone(r, i) && !wanted(r, i) ->
					if
					:: call[r].verdict != REFUSE && (saw[r].at[i].done == 0 || saw[r].at[i].done != ledger[i].token) ->
						call[r].verdict = TAKE; saw[r].at[i].todo = 1
					:: else -> skip
					fi
#endif
				fi;
				i++
			:: else -> break
			od
		fi
	fi;
	i = 0
}

/* The ledger says so already. */
#define contestedSo(r, x) \
	(ledger[x].contested && ledger[x].contestBoot == saw[r].at[x].boot && ledger[x].st != RELEASED && \
	 (ledger[x].seen || !(saw[r].at[x].inUse && call[r].ready)))

inline judgeUnpublish(r, x)
{
	if
#ifdef NO_UNPUBLISH_GUARD
	:: 1 -> call[r].verdict = FORWARD
#else
	:: !call[r].known -> call[r].verdict = FORWARD /* in no source */
	:: call[r].known && call[r].answer && !observed(r, x) -> call[r].verdict = ANSWER
	:: call[r].known && !(call[r].answer && !observed(r, x)) ->
		if
		:: gone(r, x) && kept(r, x) -> call[r].verdict = REFUSE
		:: gone(r, x) && !kept(r, x) -> call[r].verdict = LEAVE; call[r].fenced = !saw[r].at[x].released
		:: !gone(r, x) && ledger[x].st != TAKENOVER && !contestedSo(r, x) -> call[r].verdict = CONTEST
		:: !gone(r, x) && ledger[x].st != TAKENOVER && contestedSo(r, x) -> call[r].verdict = REFUSE
		:: !gone(r, x) && ledger[x].st == TAKENOVER -> call[r].verdict = REFUSE
		fi
#endif
	fi;
	i = 0
}

/* What is to be written stands there already, as it was read: it is held against
 * the ledger all the same, and makes nobody else's reading old. */
#define unchangedBy(r) \
	(((call[r].verdict == LEAVE || call[r].verdict == FINISH) && call[r].was == (call[r].fenced -> LEAVING : RELEASED)) || \
	 (call[r].verdict == RECORD && call[r].was == PUBLISHING && noneDone(r) && \
	  (!call[r].fresh || ledger[call[r].node].boot == saw[r].at[call[r].node].boot)))
#if NODES > 2
#define noneDone(r) (saw[r].at[0].done == 0 && saw[r].at[1].done == 0 && saw[r].at[2].done == 0)
#else
#define noneDone(r) (saw[r].at[0].done == 0 && saw[r].at[1].done == 0)
#endif

/* The last read, of the lease, and the judgement. What was judged of a ledger
 * that is not the one any more is never written: such a call starts over. */
inline judge(r)
{
	call[r].verdict = REFUSE;
	if
	:: call[r].op == PUBLISH -> judgePublish(r, call[r].node)
	:: else -> judgeUnpublish(r, call[r].node)
	fi;
	k = call[r].node;
	saw[r].at[k].todo = call[r].verdict == FORWARD || call[r].verdict == LEAVE || call[r].verdict == FINISH;
	if
	:: !ISFRESH(r) && call[r].verdict != ANSWER && call[r].verdict != REFUSE ->
		call[r].verdict = AGAIN
	:: else -> skip
	fi;
	k = 0;
	do
	:: k < NODES ->
		saw[r].at[k].todo = saw[r].at[k].todo && call[r].verdict != AGAIN && call[r].verdict != REFUSE;
		k++
	:: else -> break
	od;
	k = 0
}

/* ---- what a call does with the verdict -------------------------------- */

inline writeContest(r, x)
{
	if
	:: ledger[x].st == ABSENT ->
		newToken(); ledger[x].token = t;
		ledger[x].boot = saw[r].at[x].boot; ledger[x].st = HELD
	:: ledger[x].st == RELEASED -> ledger[x].st = HELD
	:: else -> skip
	fi;
	ledger[x].seen = (ledger[x].contested && ledger[x].contestBoot == saw[r].at[x].boot && ledger[x].seen) ||
		(saw[r].at[x].inUse && call[r].ready);
	ledger[x].contested = 1;
	ledger[x].contestBoot = saw[r].at[x].boot;
	changed()
}

/* All holders that a takeover unpublishes, in one write. */
inline markLeaving(r)
{
	k = 0;
	do
	:: k < NODES ->
		if
		:: saw[r].at[k].todo ->
			putLeaving(r, k, saw[r].at[k].released);
			saw[r].at[k].done = ledger[k].token
		:: else -> skip
		fi;
		k++
	:: else -> break
	od;
	changed()
}

inline record(r, x)
{
	k = 0;
	do
	:: k < NODES ->
		if
		:: saw[r].at[k].done != 0 -> markTaken(k, saw[r].at[k].done)
		:: else -> skip
		fi;
		k++
	:: else -> break
	od;
	if
	:: (ledger[x].st == PUBLISHING || ledger[x].st == HELD) && ledger[x].boot == saw[r].at[x].boot ->
		ledger[x].st = PUBLISHING
	:: else ->
		if
		:: ledger[x].st == ABSENT || ledger[x].st == TAKENOVER -> overtakes()
		:: else -> skip
		fi;
		newToken();
		wipe(x);
		ledger[x].st = PUBLISHING; ledger[x].token = t; ledger[x].boot = saw[r].at[x].boot
	fi;
	call[r].token = ledger[x].token;
	changed()
}

/* ---- the driver: it forbids nothing ----------------------------------- */

/* It has one call for a node at a time: what is late comes before the next. */
inline settle(x)
{
	NEWS;
	if
	:: n[x].latePub -> n[x].pub = 1
	:: n[x].lateUnpub -> n[x].pub = 0
	:: else -> skip
	fi;
	n[x].latePub = 0; n[x].lateUnpub = 0
}

/* R2: no unpublish for a node where the volume is in use. */
inline unpublishReaches(x)
{
	assert(!writes(x));
	settle(x)
}

/* ---- a replica --------------------------------------------------------- */

/* It dies, or its caller gives up, and nothing of the call is left. Also how a
 * call begins and ends. */
inline forget(r)
{
	i = 0;
	do
	:: i < NODES ->
		saw[r].at[i].va = 0; saw[r].at[i].boot = 0; saw[r].at[i].inUse = 0; saw[r].at[i].listed = 0;
		saw[r].at[i].released = 0; saw[r].at[i].proof = 0; saw[r].at[i].still = 0;
		saw[r].at[i].todo = 0; saw[r].at[i].done = 0;
		i++
	:: else -> break
	od;
	call[r].op = 0; call[r].node = 0; call[r].verdict = 0; call[r].token = 0;
	call[r].fresh = 0; call[r].ready = 0; call[r].fenced = 0; call[r].known = 0; call[r].answer = 0; call[r].over = 0; call[r].booted = 0;
	call[r].was = 0; call[r].wasToken = 0
}

/* An end of the process at any point: one fault. */
#ifdef CRASHES
#define CRASH :: d_step { faults > 0 -> faults--; forget(me); TIDY } -> goto idle
#else
#define CRASH
#endif

#define X call[me].node
#define TODO(x) saw[me].at[x].todo
#if NODES > 2
#define NOTODO (!TODO(0) && !TODO(1) && !TODO(2))
#else
#define NOTODO (!TODO(0) && !TODO(1))
#endif

/* A call for node x comes, wanted or not, late or a second time: any of them at
 * any time. It reads the ledger first. */
#define CALL(what, x) :: d_step { UNTRIED(what, x) -> BEGINS; call[me].op = what; call[me].node = x; readLedger(me); TIDY }

/* The driver's four ways with an unpublish: done; done, and the answer is lost;
 * not done; done later. */
#ifdef DRIVER
#define DRIVERFAULT (faults > 0)
#else
#define DRIVERFAULT 0
#endif
#define UNPUBLISHES(x) \
	:: d_step { DRIVERFAULT -> faults--; unpublishReaches(x); n[x].pub = 0; forget(me); TIDY } -> goto idle \
	:: d_step { DRIVERFAULT -> faults--; unpublishReaches(x); forget(me); TIDY } -> goto idle \
	:: d_step { DRIVERFAULT -> faults--; unpublishReaches(x); n[x].lateUnpub = n[x].pub; forget(me); TIDY } -> goto idle

proctype Replica(byte me)
{
idle:
	if
	CALL(PUBLISH, 0)
	CALL(PUBLISH, 1)
	CALL(UNPUBLISH, 0)
	CALL(UNPUBLISH, 1)
#if NODES > 2
	CALL(PUBLISH, 2)
	CALL(UNPUBLISH, 2)
#endif
	fi;
survey:
#ifdef SPLIT
	if
	:: d_step { readAttachments(me); TIDY }
	fi;
	d_step { readNodes(me); TIDY };
#else
	if
	:: d_step { readAttachments(me); readNodes(me); TIDY }
	fi;
#endif
	d_step { judge(me); TIDY };
	if
	:: d_step { call[me].verdict == REFUSE -> REFUSED; forget(me); TIDY } -> goto idle
	:: d_step { call[me].verdict == AGAIN && call[me].op == UNPUBLISH -> forget(me); TIDY } -> goto idle
	:: d_step { call[me].verdict == AGAIN && call[me].op == PUBLISH -> readLedger(me); TIDY } -> goto survey
	:: d_step { call[me].verdict == CONTEST && FRESH -> writeContest(me, X); forget(me); TIDY } -> goto idle
	:: d_step { call[me].verdict == CONTEST && !FRESH -> forget(me); TIDY } -> goto idle
	:: call[me].verdict == ANSWER -> goto unpublished
	:: call[me].verdict == FORWARD -> goto forward
	:: call[me].verdict == LEAVE || call[me].verdict == FINISH -> goto leave
	:: call[me].verdict == TAKE -> goto take
	:: call[me].verdict == RECORD -> goto write
	CRASH
	fi;

	/* ControllerUnpublishVolume */
leave:
	if
	:: d_step { unchangedBy(me) && FRESH -> call[me].token = call[me].wasToken; TIDY }
	:: d_step { !unchangedBy(me) && FRESH -> putLeaving(me, X, !call[me].fenced); changed(); call[me].over = 0; call[me].token = ledger[X].token; TIDY }
	:: d_step { !FRESH -> forget(me); TIDY } -> goto idle
	CRASH
	fi;
	if
	:: d_step { unpublishReaches(X); n[X].pub = 0; TODO(X) = 0; TIDY }
	UNPUBLISHES(X)
	CRASH
	fi;
	if
	:: d_step {
		if
		:: call[me].fenced && saw[me].at[X].inUse -> markTaken(X, call[me].token)
		:: else -> cutEntry(X, call[me].token)
		fi; TIDY
	}
	CRASH
	fi;
	if
	:: call[me].verdict == LEAVE -> goto unpublished
	:: d_step { call[me].verdict == FINISH -> readLedger(me); TIDY } -> goto survey
	fi;
forward:
	if
	:: d_step { FRESH -> unpublishReaches(X); n[X].pub = 0; TODO(X) = 0; TIDY }
	:: d_step { !FRESH -> forget(me); TIDY } -> goto idle
	CRASH
	fi;
unpublished: /* the attacher takes its finalizer off */
	if
	:: d_step {
		if
		:: n[X].va == DELETED -> NEWS; n[X].va = NOVA; n[X].again = 0; n[X].heard = 0
		:: else -> skip
		fi;
		forget(me); TIDY
	}
	CRASH
	fi;
	goto idle;

	/* ControllerPublishVolume */
take:
	if
	:: d_step { FRESH -> markLeaving(me); call[me].over = 0; TIDY }
	:: d_step { !FRESH -> readLedger(me); TIDY } -> goto survey
	CRASH
	fi;
	do
	:: d_step { TODO(0) -> unpublishReaches(0); n[0].pub = 0; TODO(0) = 0; TIDY }
	:: d_step { TODO(1) -> unpublishReaches(1); n[1].pub = 0; TODO(1) = 0; TIDY }
	:: d_step { TODO(0) && DRIVERFAULT -> faults--; unpublishReaches(0); n[0].lateUnpub = n[0].pub; forget(me); TIDY } -> goto idle
	:: d_step { TODO(1) && DRIVERFAULT -> faults--; unpublishReaches(1); n[1].lateUnpub = n[1].pub; forget(me); TIDY } -> goto idle
	:: d_step { TODO(0) && DRIVERFAULT -> faults--; unpublishReaches(0); n[0].pub = 0; forget(me); TIDY } -> goto idle
	:: d_step { TODO(1) && DRIVERFAULT -> faults--; unpublishReaches(1); n[1].pub = 0; forget(me); TIDY } -> goto idle
#if NODES > 2
	:: d_step { TODO(2) -> unpublishReaches(2); n[2].pub = 0; TODO(2) = 0; TIDY }
	:: d_step { TODO(2) && DRIVERFAULT -> faults--; unpublishReaches(2); n[2].lateUnpub = n[2].pub; forget(me); TIDY } -> goto idle
	:: d_step { TODO(2) && DRIVERFAULT -> faults--; unpublishReaches(2); n[2].pub = 0; forget(me); TIDY } -> goto idle
#endif
	:: d_step { NOTODO -> readLedger(me); TIDY } -> break
	CRASH
	od;
#ifndef NO_REJUDGE
	goto survey;
#endif
write:
	if
#ifdef NO_RECORD
	:: d_step { call[me].token = 0; call[me].over = 0; TIDY }
#else
	:: d_step { unchangedBy(me) && FRESH -> call[me].token = call[me].wasToken; TIDY }
	:: d_step { !unchangedBy(me) && FRESH -> record(me, X); call[me].over = 0; TIDY }
	:: d_step { !FRESH -> readLedger(me); TIDY } -> goto survey
#endif
	CRASH
	fi;
	if
	:: d_step { settle(X); holdsR1(X); n[X].pub = 1; TIDY }
	:: d_step { DRIVERFAULT -> faults--; settle(X); holdsR1(X); n[X].pub = 1; forget(me); TIDY } -> goto idle
	:: d_step { DRIVERFAULT -> faults--; settle(X); n[X].latePub = !n[X].pub; forget(me); TIDY } -> goto idle
	CRASH
	fi;
	/* It reads the ledger once more before it answers. */
	if
#if defined(NO_VERIFY) || defined(NO_RECORD)
	:: 1 -> goto published
#else
	:: ledger[X].st == ABSENT || ledger[X].st == TAKENOVER -> goto undo
	:: d_step { ledger[X].st == LEAVING || ledger[X].st == RELEASED || ledger[X].token != call[me].token -> forget(me); TIDY } -> goto idle
	:: (ledger[X].st == PUBLISHING || ledger[X].st == HELD) && ledger[X].token == call[me].token -> goto published
#endif
	CRASH
	fi;
published: /* the attacher writes attached=true */
	if
	:: d_step {
		if
		:: n[X].va == WAITING -> NEWS; n[X].va = ATTACHED
		:: else -> skip
		fi;
		forget(me); TIDY
	}
	CRASH
	fi;
	goto idle;

undo:
	if
	:: d_step {
		ledger[X].st == ABSENT || ledger[X].st == TAKENOVER ->
		newToken(); wipe(X);
		ledger[X].st = LEAVING; ledger[X].token = t; ledger[X].boot = saw[me].at[X].boot;
		call[me].token = t;
		changed(); TIDY
	}
	:: d_step { ledger[X].st != ABSENT && ledger[X].st != TAKENOVER -> forget(me); TIDY } -> goto idle
	CRASH
	fi;
	if
	:: d_step { unpublishReaches(X); n[X].pub = 0; TODO(X) = 0; TIDY }
	UNPUBLISHES(X)
	CRASH
	fi;
	d_step { cutEntry(X, call[me].token); forget(me); TIDY };
	goto idle
}

/* ---- everything else --------------------------------------------------- */

/* Its Ready condition changes. */
inline readyChanges(x)
{
	n[x].again = n[x].va == DELETED; n[x].heard = n[x].again;
	n[x].unknown = 0;
	ledger[x].seen = 0;
	i = 0;
	do
	:: i < REPLICAS ->
		if
		:: call[i].node == x -> call[i].ready = 0
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* What was judged of it before is of the boot before. */
inline boots()
{
	i = 0;
	do
	:: i < REPLICAS -> call[i].booted = call[i].op != 0; i++
	:: else -> break
	od;
	i = 0
}

#ifdef MAY_RESTART_UNSEEN
#define unseen(x) 1
#else
#define unseen(x) n[x].taint
#endif

#define REACHES(x) (n[x].on && n[x].link)

/* A node, and what others do to it. */
proctype World(byte x)
{
end:
	do
	/* a machine */
#ifdef POWER
	:: d_step { faults > 0 && n[x].on -> NEWS; faults--; n[x].on = 0; n[x].mounted = 0; n[x].tracked = 0; n[x].reported = 0; n[x].link = 1; TIDY }
#endif
#ifdef POWER
	:: d_step { !n[x].on -> NEWS; n[x].on = 1; n[x].boot++; boots(); TIDY }
#endif
#ifdef LINK
	:: d_step { faults > 0 && REACHES(x) -> NEWS; faults--; n[x].link = 0; TIDY }
#endif
#ifdef LINK
	:: d_step { !n[x].link -> NEWS; n[x].link = 1; TIDY }
#endif
	/* its kubelet */
	:: d_step { REACHES(x) && (n[x].stale || n[x].unchanged || asked == x) ->
		n[x].stale = 0; n[x].unchanged = 0;
		if
		:: asked == x -> askedSame = 0
		:: else -> skip
		fi; TIDY }
	:: d_step { REACHES(x) && (n[x].apiBoot != n[x].boot || n[x].inUse != n[x].tracked || n[x].reported != n[x].tracked || n[x].unknown) ->
		if
		:: n[x].unknown || n[x].apiBoot != n[x].boot -> readyChanges(x)
		:: else -> skip
		fi;
		n[x].apiBoot = n[x].boot; n[x].inUse = n[x].tracked; n[x].reported = n[x].tracked; n[x].heard = n[x].va == DELETED;
		n[x].letGo = n[x].letGo && !n[x].inUse; TIDY }
	:: d_step { REACHES(x) && want == x && !n[x].tracked -> NEWS; n[x].tracked = 1; TIDY }
	:: d_step { REACHES(x) && n[x].tracked && n[x].reported && n[x].listed && n[x].pub && !n[x].mounted && nobodyStalls ->
		holdsR1(x); n[x].mounted = 1; TIDY }
	:: d_step { REACHES(x) && want != x && (n[x].tracked || n[x].mounted) -> NEWS; n[x].tracked = 0; n[x].mounted = 0; n[x].reported = 0; TIDY }
	/* ... starts again, and forgets what it finds mounted and not listed. That
	 * shows in its Ready condition, or a taint is on. */
#ifdef KUBELET
	:: d_step { faults > 0 && REACHES(x) && n[x].tracked -> NEWS; faults--;
		n[x].tracked = n[x].mounted && n[x].listed; n[x].reported = 0;
		readyChanges(x);
#ifndef MAY_POST_EARLY
		/* with its first word it says what it uses */
		n[x].inUse = n[x].tracked; n[x].reported = n[x].tracked; n[x].apiBoot = n[x].boot;
		n[x].letGo = n[x].letGo && !n[x].inUse;
#endif
		TIDY }
#endif
#ifdef KUBELET
	:: d_step { faults > 0 && REACHES(x) && n[x].tracked && unseen(x) -> NEWS; faults--;
		n[x].tracked = n[x].mounted && n[x].listed; n[x].reported = 0; TIDY }
#endif
	/* the node lifecycle controller */
	:: d_step { !REACHES(x) && !n[x].stale -> NEWS; n[x].stale = 1; TIDY }
	:: d_step { !REACHES(x) && n[x].stale && !n[x].unknown -> NEWS; n[x].unknown = 1; TIDY }
	/* the attach-detach controller */
	:: d_step { x == 0 && moves > 0 -> NEWS; moves--; want = (want + 1) % NODES; TIDY }
	:: d_step { want == x && n[x].va == NOVA -> NEWS; n[x].va = WAITING; TIDY }
	:: d_step { want == x && n[x].va == ATTACHED && !n[x].listed && !n[x].detaching -> NEWS; n[x].listed = 1; n[x].letGo = 0; TIDY }
	:: d_step { want != x && (n[x].va == WAITING || n[x].va == ATTACHED) && !n[x].inUse && !n[x].detaching -> NEWS;
		n[x].letGo = n[x].letGo || n[x].listed; n[x].listed = 0; n[x].detaching = 1; TIDY }
	:: d_step { n[x].detaching && n[x].inUse -> NEWS; n[x].detaching = 0; TIDY }
	:: d_step { n[x].detaching && !n[x].inUse -> NEWS; n[x].detaching = 0; n[x].va = DELETED; n[x].again = 0; n[x].heard = 0; TIDY }
	/* ... by force: after six minutes, or for the taint */
	:: d_step { want != x && (n[x].va == WAITING || n[x].va == ATTACHED) && (n[x].unknown || n[x].taint) ->
		n[x].letGo = (n[x].letGo || n[x].listed) && !n[x].inUse; n[x].listed = 0; n[x].detaching = 0; n[x].va = DELETED; n[x].again = 0; n[x].heard = 0; TIDY }
	/* people */
#ifdef KUBELET
	:: d_step { faults > 0 && !n[x].taint -> NEWS; faults--; n[x].taint = 1; TIDY }
#endif
#ifdef STRIP
	:: d_step { faults > 0 && n[x].va == DELETED -> NEWS; faults--; n[x].va = NOVA; n[x].again = 0; n[x].heard = 0; TIDY }
#endif
#ifdef MAY_UNTAINT
	:: d_step { n[x].taint -> NEWS; n[x].taint = 0; TIDY }
#endif
	/* an operator who says the truth, which may be read long after */
#ifdef POWER
	:: d_step { !n[x].on && !(n[x].unchanged && n[x].proofBoot == n[x].apiBoot) -> NEWS; n[x].proof = 1; n[x].unchanged = 1; n[x].proofBoot = n[x].apiBoot; TIDY }
#endif
#ifdef MAY_SPEAK_LATE
	/* ... or what was true once */
	:: d_step { n[x].boot > 0 && n[x].stale && !n[x].unchanged -> n[x].proof = 1; n[x].unchanged = 1; n[x].proofBoot = n[x].apiBoot; TIDY }
#endif
	/* the agents, between two looks at the node */
#ifdef POWER
	:: d_step { n[x].stale && asked == NOBODY && !(n[x].proof && n[x].unchanged && n[x].proofBoot == n[x].apiBoot) -> NEWS; asked = x; askedSame = 1; askedBoot = n[x].apiBoot; hasRead = 0; readOff = 0; TIDY }
#endif
#ifdef POWER
	:: d_step { asked == x && !hasRead -> NEWS; hasRead = 1; readOff = !n[x].on; TIDY }
#endif
#ifdef POWER
	:: d_step { asked == x && hasRead ->
		if
#ifdef NO_SECOND_LOOK
		:: readOff ->
#else
		:: readOff && askedSame && askedBoot == n[x].apiBoot ->
#endif
			n[x].proof = 1; n[x].unchanged = 1; n[x].proofBoot = n[x].apiBoot
		:: else -> skip
		fi;
		asked = NOBODY; hasRead = 0; readOff = 0; askedSame = 0; askedBoot = 0; TIDY }
#endif
	/* the driver, late */
	:: d_step { n[x].latePub -> NEWS; n[x].latePub = 0; n[x].pub = 1; TIDY }
	:: d_step { n[x].lateUnpub -> NEWS; n[x].lateUnpub = 0; assert(!writes(x)); n[x].pub = 0; TIDY }
	od;
	i = 0
}

#ifdef LIVE
/* Nothing can happen any more: the pod has its volume, unless its node is dead, or
 * a kubelet is not believed until a person releases the volume. */
#if NODES > 2
#define waitsForAPerson (ledger[0].contested || ledger[1].contested || ledger[2].contested)
#else
#define waitsForAPerson (ledger[0].contested || ledger[1].contested)
#endif

proctype Monitor()
{
	timeout -> assert(!n[want].on || waitsForAPerson || (n[want].mounted && n[want].pub && n[want].va == ATTACHED))
}
#endif

init
{
	d_step {
		i = 0;
		do
		:: i < NODES -> n[i].on = 1; n[i].link = 1; i++
		:: else -> break
		od;
#ifndef UNUSED
		/* The pod runs on node 0. */
		n[0].mounted = 1; n[0].tracked = 1; n[0].reported = 1; n[0].pub = 1;
		n[0].inUse = 1; n[0].listed = 1; n[0].va = ATTACHED;
		ledger[0].st = PUBLISHING; ledger[0].token = 1; TIDY
#endif
		i = 0
	}
	atomic { run Replica(0);
#if REPLICAS > 1
	run Replica(1);
#endif
	run World(0);
#if NODES > 2
	run World(2);
#endif
	run World(1)
#ifdef LIVE
	; run Monitor()
#endif
	}
}
