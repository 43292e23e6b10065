use super::Handshake;

#[test]
fn only_a_sleeper_is_rung_and_only_once() {
    let handshake = Handshake::new();
    assert!(!handshake.notify(), "awake");
    assert!(!handshake.prepare_sleep(), "there is word");
    assert!(!handshake.prepare_sleep(), "and still");
    handshake.awake();
    assert!(handshake.prepare_sleep());
    assert!(handshake.prepare_sleep(), "asleep already");
    assert!(handshake.notify(), "asleep");
    assert!(!handshake.notify(), "rung already");
    assert!(!handshake.prepare_sleep());
    handshake.awake();
    assert!(handshake.prepare_sleep());
}
