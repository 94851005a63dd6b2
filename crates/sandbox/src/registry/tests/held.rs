//! Sandboxes whose node has no lease for the moment, with machines that are nothing but a switch.

use super::*;

async fn hold(registry: &Registry, name: &str) -> Result<Record, SandboxError> {
    registry.order(&which(name), |reply| Order::Hold { reply }).await
}

async fn go_on(registry: &Registry, name: &str) -> Result<Record, SandboxError> {
    registry.order(&which(name), |reply| Order::GoOn { reply }).await
}

#[tokio::test]
async fn one_that_ran_goes_on_with_the_lease_and_one_that_was_paused_stays_so() {
    let place = TestRegistry::new("held");
    let registry = place.open().await;
    for name in ["runs", "halted"] {
        registry.create(spec(name)).await.unwrap();
    }
    registry.pause(&which("halted")).await.unwrap();
    assert!(hold(&registry, "runs").await.unwrap().state.is_held());
    assert!(!hold(&registry, "halted").await.unwrap().state.is_held());
    let refused = registry.visit(&which("runs")).await.err().unwrap();
    assert!(matches!(refused, SandboxError::Held { .. }), "{refused}");
    assert_eq!(go_on(&registry, "runs").await.unwrap().state, State::Running);
    let halted = go_on(&registry, "halted").await.unwrap().state;
    assert!(matches!(halted, State::Paused { by_lease: false, .. }), "{halted}");
    // Paused by hand meanwhile: it is for the one who did so to resume it.
    hold(&registry, "runs").await.unwrap();
    registry.pause(&which("runs")).await.unwrap();
    let paused = go_on(&registry, "runs").await.unwrap().state;
    assert!(matches!(paused, State::Paused { by_lease: false, .. }), "{paused}");
    assert_eq!(registry.resume(&which("runs")).await.unwrap().state, State::Running);
}

#[tokio::test]
async fn one_without_a_name_in_a_fleet_is_not_held() {
    let place = TestRegistry::new("alone");
    let registry = place.open().await;
    registry.create(spec("own")).await.unwrap();
    registry.pause(&which("own")).await.unwrap();
    assert!(registry.hold().await.is_empty());
    assert_eq!(registry.resume(&which("own")).await.unwrap().state, State::Running);
    assert!(registry.hold().await.is_empty());
    assert_eq!(registry.get(&which("own")).unwrap().state, State::Running);
}
