//! One run of one seed: two ends, the links between them, and chance.

use std::fmt;
use std::rc::Rc;

use protocol::codec::{FrameBuffer, decode_body, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Hello, Resume, VERSION_MAX, VERSION_MIN, Welcome};
use protocol::{AgentId, ClientId, RequestId, Token};

use crate::agent::Agent;
use crate::host::{Host, Phase};
use crate::link::Link;
use crate::plan::Plan;
use crate::random::Random;

/// Virtual time after which two ends that have not finished never will.
const STEPS_MAX: u64 = 300_000;

/// Whether a run prints its events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Silent,
    Aloud,
}

impl Telling {
    #[expect(clippy::print_stdout, reason = "the events of a seed are for the person who runs it")]
    pub fn say(self, what: impl FnOnce() -> String) {
        if self == Self::Aloud {
            println!("{}", what());
        }
    }
}

/// What runs have covered, to detect a simulation that tests nothing.
#[derive(Default)]
pub struct Tally {
    steps: u64,
    cuts: u64,
    resumed: u64,
    requests: u64,
    adoptions: u64,
    bytes: u64,
    gap_bytes: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.resumed += other.resumed;
        self.requests += other.requests;
        self.adoptions += other.adoptions;
        self.bytes += other.bytes;
        self.gap_bytes += other.gap_bytes;
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Clones have had something to inherit, and their links were cut.
    pub fn assert_clones_worth_running(&self, seeds: u64) {
        if seeds >= 100 {
            assert!(self.adoptions == 2 * seeds, "each clone is adopted once");
            assert!(self.cuts > seeds && self.resumed > seeds / 2, "links are cut and resumed");
            assert!(self.bytes > 10_000 * seeds, "bytes are inherited");
        }
    }

    /// Over a good many seeds, everything that can happen has happened.
    pub fn assert_worth_running(&self, seeds: u64) {
        if seeds >= 100 {
            assert!(self.cuts > seeds, "links are cut");
            assert!(self.resumed > seeds / 2, "links are resumed");
            assert!(self.requests > 4 * seeds, "requests are made");
            assert!(self.adoptions > seeds / 4, "agents are adopted");
            assert!(self.bytes > 10_000 * seeds, "bytes are moved");
            assert!(self.gap_bytes > 100 * seeds, "bytes are missed");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} steps, {} cuts, {} resumed, {} requests, {} adoptions, {} bytes, {} bytes in gaps",
            self.steps,
            self.cuts,
            self.resumed,
            self.requests,
            self.adoptions,
            self.bytes,
            self.gap_bytes
        )
    }
}

pub struct World {
    random: Random,
    telling: Telling,
    plan: Rc<Plan>,
    host: Host,
    agent: Agent,
    /// All links there ever were; the newest is the host's.
    links: Vec<Link>,
    cuts_left: u64,
    amnesia_left: bool,
    /// The token that a client of before a snapshot has.
    ghost: Option<Token>,
}

/// Ids that a ghost may claim to have no answers of.
const GHOST_CLAIMS: u64 = 64;

impl World {
    pub fn new(seed: u64, telling: Telling) -> Self {
        let mut random = Random::new(seed);
        let plan = Rc::new(Plan::new(&mut random));
        let host = Host::new(plan.clone(), telling, &mut random);
        let agent = Agent::new(plan.clone(), telling);
        let (cuts_left, amnesia_left) = (plan.cuts, plan.amnesia);
        let (links, ghost) = (Vec::new(), None);
        Self { random, telling, plan, host, agent, links, cuts_left, amnesia_left, ghost }
    }

    /// A clone of the agent of `seed` as it is after this many steps, with its own host. Nothing has to be
    /// copied: a seed always gives the same result.
    pub fn clone_of(seed: u64, steps: u64, number: u8, telling: Telling) -> Self {
        let mut snapshot = Self::new(seed, Telling::Silent);
        for _ in 0..steps {
            snapshot.step();
        }
        let Self { plan, mut agent, .. } = snapshot;
        let ghost = Some(agent.token);
        agent.wake_as_clone();
        let host = Host::of_clone(plan.clone(), telling, number, agent.sessions());
        let random = Random::new(seed ^ u64::from(number) << 56);
        let (cuts_left, amnesia_left, links) = (plan.cuts, false, Vec::new());
        Self { random, telling, plan, host, agent, links, cuts_left, amnesia_left, ghost }
    }

    /// The agent's identity.
    pub fn identity(&self) -> (AgentId, Token) {
        (self.agent.id, self.agent.token)
    }

    /// The client from before the snapshot finds the clone instead of its own agent.
    fn haunt(&mut self) {
        let Some(token) = self.ghost.filter(|_| self.agent.adopted_by.is_some()) else { return };
        let resume = Resume {
            token,
            streams: Vec::new(),
            unanswered: (0..GHOST_CLAIMS).map(RequestId).collect(),
        };
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            client: ClientId([7; 16]),
            name: "ghost".to_owned(),
            dial: u64::MAX,
            resume: Some(resume),
            resume_window_ms: 0,
        };
        let mut bytes = Vec::new();
        encode_message(Kind::Hello, 0, &hello, &mut bytes);
        let mut link = Link::new(&mut self.random);
        self.agent.receive(usize::MAX, &bytes, &mut link.to_host);
        let mut frames = FrameBuffer::new();
        while let Some(bytes) = link.to_host.read(&mut self.random) {
            frames.extend(&bytes);
        }
        let frame = frames.take().expect("a frame").expect("an answer");
        let welcome: Welcome = decode_body(frame.kind, frame.body).expect("a welcome");
        assert!(!welcome.resumed && welcome.streams.is_empty(), "a ghost takes nothing up");
        assert!(welcome.token != self.agent.token, "and is told no secret");
        self.agent.receive(usize::MAX, &[], &mut link.to_host);
    }

    /// Runs to the end and returns what was covered.
    pub fn run(&mut self) -> Tally {
        let mut steps = 0;
        while !self.is_over() {
            steps += 1;
            assert!(steps < STEPS_MAX, "the ends make progress: {}", self.stand());
            self.step();
        }
        self.haunt();
        self.assert_everything_was_done();
        Tally {
            steps,
            cuts: self.plan.cuts - self.cuts_left,
            resumed: self.agent.resumed,
            requests: self.host.answered.len() as u64,
            adoptions: self.host.adoptions,
            bytes: self.host.bytes + self.agent.bytes,
            gap_bytes: self.host.gaps,
        }
    }

    fn step(&mut self) {
        let random = &mut self.random;
        if self.host.phase == Phase::Down && random.once_in(10) {
            let mut link = Link::new(random);
            self.telling.say(|| format!("host: dials link {}", self.links.len()));
            self.host.dial(&mut link.to_agent);
            self.links.push(link);
        }
        let is_dialled = self.host.phase != Phase::Down;
        if is_dialled && self.cuts_left > 0 && random.once_in(self.plan.cut_odds) {
            self.cuts_left -= 1;
            self.cut();
        }
        self.host.step(&mut self.random);
        self.agent.step(&mut self.random);
        self.transmit();
        self.deliver();
        if self.ghost.is_some() && self.random.once_in(100) {
            self.haunt();
        }
        self.agent.assert_bounded();
    }

    /// The link breaks, or the host gives it up, or the agent has waited for too long.
    fn cut(&mut self) {
        let random = &mut self.random;
        if self.amnesia_left && random.once_in(self.cuts_left + 1) {
            self.amnesia_left = false;
            self.agent.forget_client();
        }
        let Some(link) = self.links.last_mut() else { return };
        self.telling.say(|| "link: is cut".to_owned());
        link.cut(random);
        if random.once_in(3) {
            self.host.hang_up();
        }
    }

    fn transmit(&mut self) {
        let newest = self.links.len();
        let Some(link) = self.links.last_mut() else { return };
        let target = 1 + self.random.magnitude(128 * 1024) as usize;
        if self.random.once_in(2) {
            self.host.transmit(&mut link.to_agent, target);
        }
        if self.random.once_in(2) {
            self.agent.transmit(newest - 1, &mut link.to_host, target);
        }
    }

    /// Old links may still deliver data to the agent.
    fn deliver(&mut self) {
        let newest = self.links.len();
        for (at, link) in self.links.iter_mut().enumerate().skip(newest.saturating_sub(3)) {
            if self.random.once_in(2)
                && let Some(bytes) = link.to_agent.read(&mut self.random)
            {
                self.agent.receive(at, &bytes, &mut link.to_host);
            }
        }
        if self.host.phase == Phase::Down || self.random.once_in(2) {
            return;
        }
        let link = self.links.last_mut().expect("a host that is not down has a link");
        match link.to_host.read(&mut self.random) {
            Some(bytes) if bytes.is_empty() => self.host.hang_up(),
            Some(bytes) => self.host.receive(&bytes),
            None => {}
        }
    }

    /// The last answer has come, and so has everything that was under way after it.
    fn is_over(&self) -> bool {
        self.host.is_finished
            && self.host.phase == Phase::Up
            && self.links.last().is_some_and(Link::is_quiet)
            && !self.host.mux.has_work()
            && !self.agent.mux.has_work()
    }

    fn assert_everything_was_done(&self) {
        self.agent.assert_clean();
        for (end, mux) in [("host", &self.host.mux), ("agent", &self.agent.mux)] {
            let open = mux.positions().into_iter().filter(|position| position.gone.is_none());
            let open: Vec<_> = open.map(|position| position.stream).collect();
            assert!(open.is_empty(), "the {end} still has {open:?}");
        }
        assert!(self.host.calls.unanswered().is_empty(), "every request is answered");
        let counts = [&self.host.answered, &self.agent.carried_out];
        for (id, count) in counts.into_iter().flatten() {
            assert_eq!(*count, 1, "request {} is carried out and answered once", id.0);
        }
        if !self.plan.amnesia {
            let (answered, done) = (&self.host.answered, &self.agent.carried_out);
            assert!(answered.keys().eq(done.keys()), "what is answered was carried out");
        }
    }

    fn stand(&self) -> String {
        format!(
            "host {:?}, open {:?}, unanswered {:?}; agent open {:?}, taken {:?}",
            self.host.phase,
            self.host.mux.positions(),
            self.host.calls.unanswered(),
            self.agent.mux.positions(),
            self.agent.answers.taken(),
        )
    }
}
