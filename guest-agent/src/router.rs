//! Hands each request to the part that carries it out, in one exhaustive match.
//!
//! Streams are opened before anything is awaited, because a client may send data directly after its
//! request.

use std::rc::Rc;
use std::time::Duration;

use protocol::limits::STOP_GRACE_GUEST;
use protocol::message::{InputOpened, Reply};
use protocol::metrics::AskUsage;
use protocol::mux::Direction;
use protocol::repl::Run;
use protocol::requests::{Input, Subscribe};
use protocol::{Fault, FaultCode, Request, RequestId, StreamId};

use crate::agent::Agent;
use crate::flow::{Inlet, Outlet};
use crate::peer::Peer;
use crate::session::Starter;
use crate::task::{self, Work};
use crate::{adopt, file, freeze, metrics, port, repl};

/// The kernel's largest file offset.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The size of a transfer's spool: a few chunks, so that disk and link work at the same time.
const TRANSFER_BYTES: usize = 512 * 1024;

/// Carries a request out, now or in the background, and answers it.
pub fn handle(agent: &Rc<Agent>, peer: &Rc<Peer>, id: RequestId, request: Request) {
    match request {
        Request::Info {} => peer.answer(id, Ok(Reply::Info(agent.ground.info()))),
        Request::Start(ask) => {
            let by = Starter { client: peer.client };
            later(peer, id, agent.sessions.start(&ask, by));
        }
        Request::Sessions { since, lasting } => {
            let sessions = agent.sessions.clone();
            let list = async move { Ok(Reply::Sessions(sessions.list(since, lasting).await)) };
            later(peer, id, boxed(list));
        }
        Request::Wait { session } => match agent.sessions.get(&session) {
            Ok(session) => {
                let wait = async move {
                    let record = session.wait().await;
                    Ok(Reply::Exited(
                        session.digested_record().unwrap_or_else(|| (*record).clone()),
                    ))
                };
                later(peer, id, boxed(wait));
            }
            Err(fault) => peer.answer(id, Err(fault)),
        },
        Request::Signal(ask) => {
            let session = agent.sessions.get(&ask.session);
            let sent =
                session.and_then(|session| session.signal(&ask, &peer.name, &agent.ground.reaper));
            peer.answer(id, sent.map(done));
        }
        Request::Resize(ask) => {
            peer.answer(id, agent.sessions.resize(&ask, peer.client).map(done));
        }
        Request::Release(ask) => peer.answer(id, agent.sessions.release(&ask).map(done)),
        Request::Subscribe(ask) => peer.answer(id, subscribe(agent, peer, id, &ask)),
        Request::Input(ask) => peer.answer(id, input(agent, peer, id, &ask)),
        Request::ReadFile(ask) => {
            let stream = ask.stream;
            let opened = outlet(agent, peer, id, stream, ask.offset);
            let work = opened.map(|outlet| boxed(file::read_file(ask, outlet)));
            transfer(agent, peer, id, stream, work);
        }
        Request::WriteFile(ask) => {
            let stream = ask.stream;
            let opened = inlet(peer, id, stream);
            let work = opened.map(|inlet| boxed(file::write_file(ask, inlet)));
            transfer(agent, peer, id, stream, work);
        }
        Request::TarGet(ask) => {
            let stream = ask.stream;
            let opened = outlet(agent, peer, id, stream, 0);
            let work = opened.map(|outlet| boxed(file::tar_get(ask, outlet)));
            transfer(agent, peer, id, stream, work);
        }
        Request::TarPut(ask) => {
            let stream = ask.stream;
            let opened = inlet(peer, id, stream);
            let work = opened.map(|inlet| boxed(file::tar_put(ask, inlet)));
            transfer(agent, peer, id, stream, work);
        }
        Request::LayerGet(ask) => {
            let opened = outlet(agent, peer, id, ask.stream, 0);
            let (layer, env) =
                (agent.ground.config.layer.clone(), agent.ground.environment.with(&[]));
            let work = opened.map(|outlet| boxed(file::layer_get(layer, env, outlet)));
            transfer(agent, peer, id, ask.stream, work);
        }
        Request::LayerPut(ask) => {
            let work = inlet(peer, id, ask.stream).map(|inlet| boxed(file::layer_put(inlet)));
            transfer(agent, peer, id, ask.stream, work);
        }
        Request::Watch(ask) => {
            let stream = ask.stream;
            let opened = outlet(agent, peer, id, stream, 0);
            let work = opened.map(|outlet| boxed(file::watch(ask, outlet)));
            transfer(agent, peer, id, stream, work);
        }
        Request::Forward(ask) => {
            let stream = ask.stream;
            let opened = both(agent, peer, id, stream);
            let gates = agent.gates.clone();
            let work = opened.map(|opened| boxed(port::forward(gates, ask, opened.0, opened.1)));
            transfer(agent, peer, id, stream, work);
        }
        Request::Stat { path, follow } => later(peer, id, boxed(file::stat(path, follow))),
        Request::List(ask) => later(peer, id, boxed(file::list(ask))),
        Request::MakeDirectory(ask) => change(agent, peer, id, boxed(file::make_directory(ask))),
        Request::Move(ask) => change(agent, peer, id, boxed(file::rename(ask))),
        Request::Remove(ask) => change(agent, peer, id, boxed(file::remove(ask))),
        Request::OpenContext(ask) => later(peer, id, agent.contexts.open(&ask)),
        Request::Contexts {} => peer.answer(id, Ok(agent.contexts.list())),
        Request::Run(ask) => run(agent, peer, id, ask),
        Request::Interrupt(ask) => {
            later(peer, id, agent.contexts.interrupt(ask, peer.name.clone()));
        }
        Request::AnswerInput(ask) => later(peer, id, agent.contexts.answer_input(ask)),
        Request::Complete(ask) => later(peer, id, agent.contexts.complete(ask)),
        Request::CheckCode { context, code } => {
            later(peer, id, agent.contexts.check_code(&context, code));
        }
        Request::WatchContext { context, stream } => {
            let opened = outlet(agent, peer, id, stream, 0);
            let watching = opened.and_then(|outlet| agent.contexts.watch(&context, outlet));
            if watching.is_err() {
                peer.forget(stream);
            }
            peer.answer(id, watching);
        }
        Request::RestartContext { context } => {
            later(peer, id, agent.contexts.restart(&context, peer.name.clone()));
        }
        Request::CloseContext { context } => {
            later(peer, id, agent.contexts.close(&context, peer.name.clone()));
        }
        Request::Metrics(ask) => {
            later(peer, id, boxed(metrics::answer(agent.metrics.clone(), ask)));
        }
        Request::Usage(ask) => usage(agent, peer, id, ask),
        Request::Shutdown(ask) => {
            agent.stop(ask.grace_ms.map_or(STOP_GRACE_GUEST, Duration::from_millis));
            peer.answer(id, Ok(Reply::Done {}));
        }
        Request::Freeze { watchdog_ms } => {
            later(peer, id, freeze::freeze(&agent.ground, watchdog_ms));
        }
        Request::Thaw { time_us } => {
            // The clock first, so that no thawed program sees the old time.
            let drift_us = time_us.and_then(|time_us| adopt::step(agent, time_us));
            let thawed = freeze::thaw(&agent.ground);
            peer.answer(id, thawed.map(|frozen_ms| Reply::Thawed { frozen_ms, drift_us }));
        }
        Request::Adopt(ask) => peer.answer(id, adopt::adopt(agent, peer, id, ask)),
        // No stream is opened, so data that the host sends on one is ignored.
        Request::Unknown { name } => {
            let message = format!("this agent does not know the request {name:?}");
            peer.answer(id, Err(Fault::new(FaultCode::Unsupported, message)));
        }
    }
}

fn done((): ()) -> Reply {
    Reply::Done {}
}

/// The work of any request. It is boxed, so that the code around it exists once.
type Handler = Work<Result<Reply, Fault>>;

fn boxed(work: impl Future<Output = Result<Reply, Fault>> + 'static) -> Handler {
    Box::pin(work)
}

/// Does `work` in the background and answers when it is done.
fn later(peer: &Rc<Peer>, id: RequestId, work: Handler) {
    let peer = peer.clone();
    task::spawn(async move { peer.answer(id, work.await) });
}

/// The same for changes of files, which are refused while the workload is frozen.
fn change(agent: &Agent, peer: &Rc<Peer>, id: RequestId, work: Handler) {
    match agent.ground.check_running() {
        Ok(()) => later(peer, id, work),
        Err(fault) => peer.answer(id, Err(fault)),
    }
}

/// Does the work of a request with a stream. If the work fails, the stream is closed.
fn transfer(
    agent: &Agent,
    peer: &Rc<Peer>,
    id: RequestId,
    stream: StreamId,
    work: Result<Handler, Fault>,
) {
    let work = match work {
        Ok(work) => work,
        Err(fault) => return peer.answer(id, Err(fault)),
    };
    let running = agent.ground.check_running();
    let peer = peer.clone();
    task::spawn(async move {
        let result = match running {
            Ok(()) => work.await,
            Err(fault) => Err(fault),
        };
        if result.is_err() {
            peer.forget(stream);
        }
        peer.answer(id, result);
    });
}

fn outlet(
    agent: &Agent,
    peer: &Peer,
    id: RequestId,
    stream: StreamId,
    at: u64,
) -> Result<Outlet, Fault> {
    if at > OFFSET_MAX {
        return Err(Fault::new(
            FaultCode::Invalid,
            format!("offset {at} is beyond the largest file"),
        ));
    }
    let tap = peer.open(id, stream, Direction::Out, at)?;
    let outlet = Outlet::transfer(at, TRANSFER_BYTES, &agent.ground.budget);
    outlet.attach(tap, crate::flow::Pin::None, at);
    peer.bind_outlet(stream, &outlet);
    Ok(outlet)
}

fn inlet(peer: &Peer, id: RequestId, stream: StreamId) -> Result<Inlet, Fault> {
    let inlet = Inlet::new(peer.open(id, stream, Direction::In, 0)?);
    peer.bind_inlet(stream, &inlet, None);
    Ok(inlet)
}

fn both(
    agent: &Agent,
    peer: &Peer,
    id: RequestId,
    stream: StreamId,
) -> Result<(Inlet, Outlet), Fault> {
    streams(agent, peer, id, stream, TRANSFER_BYTES)
}

fn streams(
    agent: &Agent,
    peer: &Peer,
    id: RequestId,
    stream: StreamId,
    spool_bytes: usize,
) -> Result<(Inlet, Outlet), Fault> {
    let tap = peer.open(id, stream, Direction::Both, 0)?;
    let inlet = Inlet::new(tap.clone());
    let outlet = Outlet::transfer(0, spool_bytes, &agent.ground.budget);
    outlet.attach(tap, crate::flow::Pin::None, 0);
    peer.bind_inlet(stream, &inlet, None);
    peer.bind_outlet(stream, &outlet);
    Ok((inlet, outlet))
}

/// Queues a run. If the request carries the code, it is queued at once, so that runs keep their order.
fn run(agent: &Rc<Agent>, peer: &Rc<Peer>, id: RequestId, mut ask: Run) {
    let (inlet, outlet) = match streams(agent, peer, id, ask.stream, repl::RUN_SPOOL_BYTES) {
        Ok(opened) => opened,
        Err(fault) => return peer.answer(id, Err(fault)),
    };
    if let Some(code) = ask.code.take() {
        return queue_run(agent, peer, id, ask, Ok(code.into_bytes()), outlet);
    }
    let (agent, peer) = (agent.clone(), peer.clone());
    task::spawn(async move {
        let code = repl::streamed_code(inlet).await;
        queue_run(&agent, &peer, id, ask, code, outlet);
    });
}

fn queue_run(
    agent: &Rc<Agent>,
    peer: &Rc<Peer>,
    id: RequestId,
    ask: Run,
    code: Result<Vec<u8>, Fault>,
    outlet: Outlet,
) {
    let stream = ask.stream;
    let answering = peer.clone();
    let announce = |reply| -> repl::Announcement {
        Box::new(move |opened| {
            if opened.is_err() {
                answering.forget(stream);
            }
            answering.answer(id, opened.map(|()| reply));
        })
    };
    let queued = agent
        .ground
        .check_running()
        .and(code)
        .and_then(|code| agent.contexts.run(ask, code, outlet, announce));
    match queued {
        Ok(Some(reply)) => peer.answer(id, Ok(reply)),
        Ok(None) => {}
        Err(fault) => {
            peer.forget(stream);
            peer.answer(id, Err(fault));
        }
    }
}

fn usage(agent: &Agent, peer: &Rc<Peer>, id: RequestId, ask: AskUsage) {
    match (ask.session, ask.context) {
        (Some(session), None) => match agent.sessions.get(&session) {
            Ok(session) => later(peer, id, boxed(metrics::usage(session.usage_snapshot()))),
            Err(fault) => peer.answer(id, Err(fault)),
        },
        (None, Some(context)) => later(peer, id, agent.contexts.usage(&context)),
        _ => {
            let message = "name one session or one context";
            peer.answer(id, Err(Fault::new(FaultCode::Invalid, message)));
        }
    }
}

fn subscribe(agent: &Agent, peer: &Peer, id: RequestId, ask: &Subscribe) -> Result<Reply, Fault> {
    let session = agent.sessions.get(&ask.session)?;
    let at = session.subscription_start(ask)?;
    let tap = peer.open(id, ask.stream, Direction::Out, at.from)?;
    let outlet = session.subscribe(ask, tap, at.from, peer.client)?;
    peer.bind_outlet(ask.stream, &outlet);
    Ok(Reply::Subscribed(at))
}

fn input(agent: &Agent, peer: &Peer, id: RequestId, ask: &Input) -> Result<Reply, Fault> {
    let session = agent.sessions.get(&ask.session)?;
    let at = session.check_keyboard(ask, peer.client)?;
    let tap = peer.open(id, ask.stream, Direction::In, at)?;
    let inlet = session.open_keyboard(tap, peer.client, &peer.name);
    peer.bind_inlet(ask.stream, &inlet, Some(session));
    Ok(Reply::Input(InputOpened { at }))
}
