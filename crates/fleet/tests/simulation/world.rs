//! Hosts, the store and the network between them, in simulated time: a queue of what happens next. Everything is
//! decided by one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use fleet::event::{
    Action, Answer, Call, CreateCall, Event, Note, Outcome, Refusal, Reply, Request, Scope, Ticket,
};
use fleet::ids::{Incarnation, Name, NodeId, Revision};
use fleet::lease::Leash;
use fleet::placement::Wish;
use fleet::random::Random;
use fleet::records::{Key, NameRecord, NameState, NodeRecord, Room, Value};
use fleet::{Me, Member};

use crate::checker::{Checker, Happened};
use crate::store::Store;

/// After this long an unanswered request counts as unanswered.
const TIMEOUT_MS: u64 = 3_000;
/// More than three roundings between clocks take away: a guardian that came too early would see nothing.
const ROUNDING_MS: u64 = 3;
pub(crate) const TICK_MS: u64 = 500;
/// The longest sleep of a guardian, after which it looks at the clock again.
const GUARDIAN_LOOK_MS: u64 = 250;

pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) member: Option<Member>,
    /// Which start of the bridge this is: what is under way to an older one gets lost.
    boot: u64,
    offset_ms: u64,
    /// How much faster the clock of this host is, in millionths.
    drift_ppm: i64,
    machines: BTreeMap<Incarnation, Machine>,
    starting: BTreeMap<Incarnation, Name>,
    /// On its disk: what was removed here, and whose record may still be there.
    removed: BTreeSet<Incarnation>,
    leash: Option<Leash>,
    pub(crate) record: NodeRecord,
    pub(crate) stopped_until: u64,
    pub(crate) no_requests_until: u64,
    pub(crate) no_replies_until: u64,
    pub(crate) no_peers_until: u64,
}

struct Machine {
    name: Name,
    needs: Room,
}

/// The create of a lost sandbox, by the bridge of a host.
struct Returning {
    request: Arc<str>,
    name: Name,
    host: usize,
    boot: u64,
    lost: Incarnation,
}

pub(crate) struct Config {
    pub(crate) hosts: usize,
    pub(crate) room: Room,
    pub(crate) limits: BTreeMap<Arc<str>, u32>,
    /// Of a message, in thousandths.
    pub(crate) loss: usize,
    /// The longest way of a message. The shortest is a millisecond.
    pub(crate) way_ms: usize,
}

enum What {
    Tick,
    Deliver(Event),
    Machine(Incarnation, Room),
    MachineEnds(Incarnation),
    Guardian,
    /// At the store.
    Store {
        from_boot: u64,
        action: Action,
    },
    /// At the host, for its member.
    Asked {
        from: usize,
        from_boot: u64,
        ticket: Ticket,
        request: Request,
    },
    /// The reply on its way back.
    Replied {
        boot: u64,
        ticket: Ticket,
        reply: Reply,
    },
    Expire {
        key: Key,
        revision: Revision,
    },
    /// The bridge makes a lost sandbox again.
    MakeAgain(Name, Incarnation),
    Boot,
}

struct Due {
    at: u64,
    order: u64,
    host: usize,
    boot: u64,
    what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) store: Store,
    pub(crate) hosts: Vec<Host>,
    pub(crate) checker: Checker,
    pub(crate) config: Config,
    pub(crate) store_away_until: u64,
    pub(crate) messages: u64,
    /// Answers that clients have not looked at.
    pub(crate) answers: Vec<(Ticket, Answer)>,
    places: HashMap<NodeId, usize>,
    queue: BinaryHeap<Reverse<Due>>,
    order: u64,
    /// Who waits for the reply to a request that a member was asked.
    asked: HashMap<u64, (usize, u64, Ticket)>,
    /// Creates of lost sandboxes, by the bridges themselves.
    returning: HashMap<Ticket, Returning>,
    /// Made again after they were lost.
    pub(crate) returned: usize,
    /// Who gives back which name.
    releasing: HashMap<Ticket, (usize, Incarnation)>,
    /// What sandboxes were made of.
    made_of: HashMap<Incarnation, Arc<str>>,
    last_asked: u64,
    last_call: Ticket,
    failure: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        let mut random = Random::new(seed);
        let hosts: Vec<_> =
            (0..config.hosts).map(|at| Host::new(at, &config, &mut random)).collect();
        let places = hosts.iter().enumerate().map(|(at, host)| (host.id.clone(), at)).collect();
        let mut world = Self {
            now: 0,
            random,
            store: Store::default(),
            hosts,
            checker: Checker::new(config.limits.clone()),
            config,
            store_away_until: 0,
            messages: 0,
            answers: Vec::new(),
            places,
            queue: BinaryHeap::new(),
            order: 0,
            asked: HashMap::new(),
            returning: HashMap::new(),
            returned: 0,
            releasing: HashMap::new(),
            made_of: HashMap::new(),
            last_asked: 0,
            last_call: 0,
            failure: None,
        };
        for host in 0..world.hosts.len() {
            let after = world.random.below(1_000) as u64;
            world.push(host, after, What::Boot);
        }
        world
    }

    fn push(&mut self, host: usize, after: u64, what: What) {
        self.order += 1;
        let (at, order, boot) = (self.now + after, self.order, self.hosts[host].boot);
        self.queue.push(Reverse(Due { at, order, host, boot, what }));
    }

    fn happened(&mut self, happened: Happened) {
        if let Err(why) = self.checker.see(self.now, happened) {
            self.failure.get_or_insert(why);
        }
    }

    /// Until `until`, or the first failure.
    pub(crate) fn run(&mut self, until: u64) -> Result<(), String> {
        while self.queue.peek().is_some_and(|Reverse(due)| due.at <= until) {
            let Some(Reverse(due)) = self.queue.pop() else { break };
            self.now = due.at;
            self.happen(due);
            if let Some(why) = self.failure.take() {
                return Err(why);
            }
        }
        self.now = until;
        Ok(())
    }

    /// A client calls a host. `None`: there is no bridge at the moment.
    pub(crate) fn call(&mut self, host: usize, what: Call) -> Option<Ticket> {
        self.hosts[host].member.as_ref()?;
        self.last_call += 1;
        let call = self.last_call;
        self.push(host, 1, What::Deliver(Event::Called { call, what }));
        Some(call)
    }

    /// Somebody removes a sandbox on its host, which needs no lease for that: its bridge gives the name back.
    pub(crate) fn remove_here(&mut self, host: usize) {
        let machines = &self.hosts[host].machines;
        if self.hosts[host].member.is_none() || machines.is_empty() {
            return;
        }
        let at = self.random.below(machines.len());
        let Some(incarnation) = self.hosts[host].machines.keys().nth(at).copied() else { return };
        self.hosts[host].machines.remove(&incarnation);
        self.happened(Happened::Stops { incarnation });
        if let Some(call) = self.call(host, Call::Release { incarnation }) {
            self.releasing.insert(call, (host, incarnation));
        }
    }

    /// The bridge that could not make a lost sandbox again tries it once more, as long as it lives.
    fn return_later(&mut self, of: Returning) {
        if self.hosts[of.host].boot == of.boot {
            let after = 1_000 + self.way();
            self.push(of.host, after, What::MakeAgain(of.name, of.lost));
        }
    }

    /// The machines of the host are gone with it.
    pub(crate) fn crash(&mut self, host: usize, down_ms: Option<u64>) {
        self.stop_machines(host);
        self.end_bridge(host, down_ms);
    }

    /// The bridge is gone for a while; machines stay for as long as the guardian lets them.
    pub(crate) fn end_bridge(&mut self, host: usize, down_ms: Option<u64>) {
        self.hosts[host].member = None;
        self.hosts[host].boot += 1;
        if let Some(down_ms) = down_ms {
            self.push(host, down_ms, What::Boot);
        }
    }

    /// The clock of a host jumps ahead, as after it was suspended or when a virtual machine is moved: the clock of
    /// leases never goes back. Its guardian looks at it again within a moment.
    pub(crate) fn jump(&mut self, host: usize, ms: u64) {
        self.hosts[host].offset_ms += ms;
        self.push(host, GUARDIAN_LOOK_MS, What::Guardian);
    }

    fn stop_machines(&mut self, host: usize) {
        self.hosts[host].starting.clear();
        for incarnation in std::mem::take(&mut self.hosts[host].machines).into_keys() {
            self.happened(Happened::Stops { incarnation });
        }
    }

    fn boot(&mut self, host: usize) {
        if self.hosts[host].member.is_some() {
            return;
        }
        let seed = self.random.draw();
        let this = &mut self.hosts[host];
        let installation: Arc<str> = this.id.as_str().into();
        let (id, record) = (this.id.clone(), this.record.clone());
        let me = Me { id, installation, record, grace_ms: fleet::limits::GRACE_MS, seed };
        let mut member = Member::new(me);
        for (incarnation, machine) in &this.machines {
            member.adopt(*incarnation, machine.name.clone(), machine.needs);
        }
        for incarnation in &this.removed {
            member.adopt_removed(*incarnation);
        }
        // What was on its way up is unknown to the new bridge, and is ended by it.
        this.starting.clear();
        this.member = Some(member);
        self.push(host, 0, What::Tick);
        for (id, value) in self.store.nodes() {
            if let Value::Node(record) = value {
                let seen = Event::NodeSeen { id, record: Some(record) };
                self.push(host, 1, What::Deliver(seen));
            }
        }
    }

    fn way(&mut self) -> u64 {
        let longest = self.config.way_ms;
        // Most ways are short, and one in fifty takes the longest.
        let bound = if self.random.below(50) == 0 { longest } else { longest.div_ceil(20) };
        1 + self.random.below(bound) as u64
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(1_000) < self.config.loss
    }

    fn happen(&mut self, due: Due) {
        let Due { host, boot, what, .. } = due;
        let is_current = self.hosts[host].boot == boot;
        match what {
            What::Boot if is_current => self.boot(host),
            What::Guardian => self.guard(host),
            What::Expire { key, revision } => {
                self.store.expire(&key, revision);
            }
            What::Store { from_boot, action } => self.store_acts(host, from_boot, action),
            What::Asked { from, from_boot, ticket, request } => {
                self.asked(host, from, from_boot, ticket, request);
            }
            What::Replied { boot, ticket, reply } if boot == self.hosts[host].boot => {
                let event = Event::Answered { ticket, reply: Some(reply) };
                self.deliver(host, event);
            }
            What::Machine(incarnation, needs) if is_current => {
                self.machine(host, incarnation, needs);
            }
            What::MachineEnds(incarnation) => {
                self.hosts[host].starting.remove(&incarnation);
                if self.hosts[host].machines.remove(&incarnation).is_some() {
                    self.happened(Happened::Stops { incarnation });
                }
                // The bridge that has asked for it may be gone: the next one sees the end as well.
                self.deliver(host, Event::MachineEnded { incarnation });
            }
            What::Tick if is_current => {
                self.deliver(host, Event::Tick);
                let after = TICK_MS.max(self.hosts[host].stopped_until.saturating_sub(self.now));
                self.push(host, after, What::Tick);
            }
            What::Deliver(event) if is_current => self.deliver(host, event),
            What::MakeAgain(name, lost) if is_current => {
                if let Some(spec) = self.made_of.get(&lost).cloned() {
                    let limit = self.config.limits.get(name.namespace()).copied();
                    let call = CreateCall {
                        name,
                        request: format!("return:{lost}").into(),
                        wish: Wish { needs: needs_of(&spec), ..Wish::default() },
                        spec,
                        limit,
                        returns: true,
                        in_place_of: Some(lost),
                    };
                    let (request, name) = (call.request.clone(), call.name.clone());
                    if let Some(ticket) = self.call(host, Call::Create(Box::new(call))) {
                        self.returning
                            .insert(ticket, Returning { request, name, host, boot, lost });
                    }
                }
            }
            _ => {}
        }
    }

    /// A bridge that is stopped sees everything when it goes on.
    fn deliver(&mut self, host: usize, event: Event) {
        let stopped = self.hosts[host].stopped_until.saturating_sub(self.now);
        if stopped > 0 {
            return self.push(host, stopped, What::Deliver(event));
        }
        let now = self.hosts[host].local(self.now);
        let Some(member) = &mut self.hosts[host].member else { return };
        for action in member.handle(now, event) {
            self.act(host, action);
        }
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Write { ticket, .. }
            | Action::Read { ticket, .. }
            | Action::Scan { ticket, .. } => {
                let none = match action {
                    Action::Write { .. } => Event::Wrote { ticket, outcome: Outcome::Unavailable },
                    Action::Read { .. } => Event::Read { ticket, entry: None },
                    _ => Event::Scanned { ticket, records: None },
                };
                self.push(host, TIMEOUT_MS, What::Deliver(none));
                self.messages += 1;
                let is_cut = self.now < self.hosts[host].no_requests_until;
                if is_cut || self.now < self.store_away_until || self.is_lost() {
                    return;
                }
                let (way, from_boot) = (self.way(), self.hosts[host].boot);
                self.push(host, way, What::Store { from_boot, action });
            }
            Action::Ask { ticket, to, request } => self.send(host, ticket, &to, request),
            Action::Reply { ticket, reply } => self.reply(host, ticket, reply),
            Action::Answer { call, answer } => self.answered(call, answer),
            Action::Leash(leash) => {
                self.hosts[host].leash = Some(leash);
                let after = self.hosts[host].true_ms_until(leash.end_at, self.now);
                self.push(host, after, What::Guardian);
            }
            Action::EndAll => self.stop_machines(host),
            Action::Start { incarnation, name, spec } => {
                let needs = needs_of(&spec);
                self.made_of.insert(incarnation, spec);
                self.hosts[host].starting.insert(incarnation, name);
                let after = 20 + self.way() * 2;
                self.push(host, after, What::Machine(incarnation, needs));
            }
            Action::End { incarnation } => {
                let after = self.way();
                self.push(host, after, What::MachineEnds(incarnation));
            }
            Action::Note(Note::Freed { incarnation }) => {
                self.hosts[host].removed.remove(&incarnation);
            }
            Action::Note(Note::Waits { name, incarnation }) => {
                // As a bridge that waits until it is written that the sandbox is lost.
                let after = 1_000 + self.way();
                self.push(host, after, What::MakeAgain(name, incarnation));
            }
            // Nobody looks for a thing here: every sandbox of a simulation has a name.
            Action::Note(_) | Action::Look { .. } => {}
        }
    }

    fn answered(&mut self, call: Ticket, answer: Answer) {
        match self.releasing.remove(&call) {
            Some((host, incarnation)) if answer != Answer::Removed => {
                self.hosts[host].removed.insert(incarnation);
            }
            Some(_) => {}
            None => match (self.returning.remove(&call), &answer) {
                (Some(Returning { request, name, .. }), Answer::Created { incarnation, .. }) => {
                    self.returned += 1;
                    self.promise(request, name, *incarnation);
                }
                // It was made again, or somebody has removed it or used its name.
                (Some(_), Answer::Refused(Refusal::Taken)) => {}
                (Some(returning), _) => self.return_later(returning),
                (None, _) => self.answers.push((call, answer)),
            },
        }
    }

    fn send(&mut self, host: usize, ticket: Ticket, to: &NodeId, request: Request) {
        let none = Event::Answered { ticket, reply: None };
        self.push(host, TIMEOUT_MS, What::Deliver(none));
        self.messages += 1;
        let Some(&to) = self.places.get(to) else { return };
        let is_cut = host != to
            && self.now < self.hosts[host].no_peers_until.max(self.hosts[to].no_peers_until);
        if is_cut || self.is_lost() {
            return;
        }
        let (way, from_boot) = (self.way(), self.hosts[host].boot);
        // One in a hundred messages comes twice, which no transport of ours does; members bear it.
        if self.config.loss > 0 && self.random.below(100) == 0 {
            let (later, request) = (way + self.way() * 40, request.clone());
            self.push(to, later, What::Asked { from: host, from_boot, ticket, request });
        }
        self.push(to, way, What::Asked { from: host, from_boot, ticket, request });
    }

    fn asked(
        &mut self,
        host: usize,
        from: usize,
        from_boot: u64,
        ticket: Ticket,
        request: Request,
    ) {
        if self.hosts[host].member.is_none() {
            return;
        }
        self.last_asked += 1;
        self.asked.insert(self.last_asked, (from, from_boot, ticket));
        let event = Event::Asked { ticket: self.last_asked, request };
        self.deliver(host, event);
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) {
        let Some((to, boot, ticket)) = self.asked.remove(&ticket) else { return };
        self.messages += 1;
        let is_cut = host != to
            && self.now < self.hosts[host].no_peers_until.max(self.hosts[to].no_peers_until);
        if !is_cut && !self.is_lost() {
            let way = self.way();
            self.push(to, way, What::Replied { boot, ticket, reply });
        }
    }

    fn store_acts(&mut self, host: usize, from_boot: u64, action: Action) {
        let event = match action {
            Action::Write { ticket, key, expected, value, ttl_s } => {
                let outcome = self.stored(&key, expected, value, ttl_s);
                Event::Wrote { ticket, outcome }
            }
            Action::Read { ticket, key } => {
                let is_late = self.config.loss > 0 && self.random.below(20) == 0;
                let entry =
                    if is_late { self.store.read_late(&key) } else { self.store.read(&key) };
                Event::Read { ticket, entry: Some(entry) }
            }
            Action::Scan { ticket, scope } => {
                Event::Scanned { ticket, records: Some(self.store.scan(&scope)) }
            }
            _ => unreachable!("only these are sent to the store"),
        };
        if self.now < self.hosts[host].no_replies_until || self.is_lost() {
            return;
        }
        let way = self.way();
        if self.hosts[host].boot == from_boot {
            self.push(host, way, What::Deliver(event));
        }
    }

    fn stored(
        &mut self,
        key: &Key,
        expected: Revision,
        value: Option<Value>,
        ttl_s: Option<u64>,
    ) -> Outcome {
        let old = self.store.peek(key).value;
        let outcome = self.store.write(key, expected, value.clone());
        let Outcome::Stored(revision) = outcome else { return outcome };
        if let Some(ttl_s) = ttl_s {
            self.push(0, ttl_s * 1_000, What::Expire { key: key.clone(), revision });
        }
        match (key, value) {
            (Key::Node(id), value) => self.show(id, value),
            (Key::Name(_), value) => self.name_written(old, value),
            _ => {}
        }
        outcome
    }

    fn show(&mut self, id: &NodeId, value: Option<Value>) {
        let record = match value {
            Some(Value::Node(record)) => Some(record),
            _ => None,
        };
        for host in 0..self.hosts.len() {
            if self.hosts[host].member.is_some() {
                let seen = Event::NodeSeen { id: id.clone(), record: record.clone() };
                let way = self.way();
                self.push(host, way, What::Deliver(seen));
            }
        }
    }

    fn name_written(&mut self, old: Option<Value>, new: Option<Value>) {
        let owned = |value| match value {
            Some(Value::Name(record @ NameRecord { state: NameState::Owned, .. })) => Some(record),
            _ => None,
        };
        let is_lost = matches!(&new, Some(Value::Name(NameRecord { state: NameState::Lost, .. })));
        match (owned(old), owned(new)) {
            (Some(old), None) if is_lost => {
                self.happened(Happened::ReportedLost { incarnation: old.incarnation });
            }
            (Some(old), None) => {
                self.happened(Happened::RecordRemoved { incarnation: old.incarnation });
            }
            (Some(old), Some(new)) if old.incarnation != new.incarnation => {
                self.failure
                    .get_or_insert(format!("{} replaces {}", new.incarnation, old.incarnation));
            }
            _ => {}
        }
    }

    fn machine(&mut self, host: usize, incarnation: Incarnation, needs: Room) {
        let Some(name) = self.hosts[host].starting.remove(&incarnation) else { return };
        // One in a hundred does not come up.
        let started = self.config.loss == 0 || self.random.below(100) != 0;
        if started {
            let machine = Machine { name: name.clone(), needs };
            self.hosts[host].machines.insert(incarnation, machine);
            let node = self.hosts[host].id.clone();
            self.happened(Happened::Runs { node, name, incarnation });
        }
        self.deliver(
            host,
            Event::MachineStarted { incarnation, failure: (!started).then(String::new) },
        );
    }

    /// Ends the machines of a host whose leash is at its end, whatever becomes of the bridge.
    fn guard(&mut self, host: usize) {
        let now = self.hosts[host].local(self.now);
        if self.hosts[host].leash.is_some_and(|leash| now >= leash.end_at) {
            let ended: Vec<_> = self.hosts[host].machines.keys().copied().collect();
            self.stop_machines(host);
            // A bridge that has come back meanwhile and not joined yet has taken them for its own.
            for incarnation in ended {
                self.deliver(host, Event::MachineEnded { incarnation });
            }
        }
    }

    pub(crate) fn promise(&mut self, request: Arc<str>, name: Name, incarnation: Incarnation) {
        self.happened(Happened::Promised { request, name, incarnation });
    }

    /// A sandbox that was made and lost, and waits to be made again. Under a quota others may have taken its place.
    pub(crate) fn forgotten(&self) -> Option<&Name> {
        self.store.waiting.iter().find(|name| {
            let entry = self.store.peek(&Key::Name((*name).clone()));
            let Some(Value::Name(record)) = entry.value else { return false };
            name.namespace().as_ref() == "free" && self.made_of.contains_key(&record.incarnation)
        })
    }

    /// A record of what was removed, as somebody was answered.
    pub(crate) fn still_recorded(&self) -> Option<Incarnation> {
        let removed = self.hosts.iter().flat_map(|host| &host.removed);
        removed.copied().find(|incarnation| {
            let mut all = self.store.scan(&Scope::Namespace("quota".into()));
            all.extend(self.store.scan(&Scope::Namespace("free".into())));
            all.iter().any(|(_, _, record)| record.incarnation == *incarnation)
        })
    }

    /// A name that the store gives to a node which does not have its sandbox.
    pub(crate) fn owned_by_none(&self) -> Option<(Name, NameRecord)> {
        let is_there = |record: &NameRecord| {
            let host = &self.hosts[self.places[&record.node]];
            host.machines.contains_key(&record.incarnation)
        };
        let all = self.hosts.iter().flat_map(|host| self.store.scan(&Scope::Node(host.id.clone())));
        let mut owned = all.filter(|(_, _, record)| record.state == NameState::Owned);
        owned.find(|(_, _, record)| !is_there(record)).map(|(name, _, record)| (name, record))
    }

    pub(crate) fn machines(&self, host: usize) -> usize {
        self.hosts[host].machines.len()
    }
}

impl Host {
    fn new(at: usize, config: &Config, random: &mut Random) -> Self {
        let id = NodeId::parse(&format!("n{at}")).expect("a name");
        let record = NodeRecord { room: config.room, ..NodeRecord::default() };
        Self {
            id,
            member: None,
            boot: 0,
            offset_ms: random.below(1_000_000_000) as u64,
            drift_ppm: random.below(1_000) as i64 - 500,
            machines: BTreeMap::new(),
            starting: BTreeMap::new(),
            removed: BTreeSet::new(),
            leash: None,
            record,
            stopped_until: 0,
            no_requests_until: 0,
            no_replies_until: 0,
            no_peers_until: 0,
        }
    }

    fn local(&self, now: u64) -> u64 {
        self.offset_ms + now.saturating_add_signed(now as i64 * self.drift_ppm / 1_000_000)
    }

    fn true_ms_until(&self, local: u64, now: u64) -> u64 {
        let left = local.saturating_sub(self.local(now));
        left.saturating_add_signed(-(left as i64 * self.drift_ppm / 1_000_000)) + ROUNDING_MS
    }
}

/// The simulated sandboxes say in their specification what they take.
pub(crate) fn needs_of(spec: &str) -> Room {
    let memory_mib = spec.parse().expect("a number of mebibytes");
    Room { sandboxes: 1, memory_mib, cpu_millis: memory_mib }
}
