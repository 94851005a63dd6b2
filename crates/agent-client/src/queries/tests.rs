use proptest::prelude::*;

use super::{HELD_BYTES_MAX, NUL, QueryFilter};

/// What a terminal without the keyboard is shown of an output in one piece, without its NULs.
fn watched(output: &[u8]) -> Vec<u8> {
    let mut filter = QueryFilter::new(0);
    let mut shown = filter.show(0, output, false);
    shown.extend(filter.cut());
    assert_eq!(shown.len(), output.len(), "offsets do not stay true: {output:?}");
    shown.retain(|byte| *byte != NUL);
    shown
}

/// Whether some terminal would answer: a reader that is lenient where terminals differ. It takes 8-bit
/// control characters inside and outside of characters of UTF-8, finds sequences within strings, and sees
/// past control characters and DEL within sequences.
fn is_answered(output: &[u8]) -> bool {
    let raw: Vec<u8> = output.iter().copied().filter(|byte| *byte != NUL).collect();
    let mut wide = Vec::new();
    let mut rest = raw.as_slice();
    while let [byte, tail @ ..] = rest {
        match (byte, tail) {
            (0xc2, [low @ 0x80..=0x9f, after @ ..]) => {
                wide.extend([0x1b, low - 0x40]);
                rest = after;
                continue;
            }
            // Text of UTF-8, cut short or not, is text to everybody who reads UTF-8, as all do who are
            // considered.
            (0xc3..=0xf4, _) => {
                let is_text = |bytes: &[u8]| {
                    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() == 1)
                        || std::str::from_utf8(bytes).is_err_and(|error| {
                            error.valid_up_to() == 0 && error.error_len().is_none()
                        })
                };
                let length = [4, 3, 2, 1].into_iter().find(|n| rest.get(..*n).is_some_and(is_text));
                rest = &rest[length.unwrap_or(1)..];
                continue;
            }
            (0x80..=0x9f, _) => wide.extend([0x1b, byte - 0x40]),
            _ => wide.push(*byte),
        }
        rest = tail;
    }
    wide.contains(&0x05)
        || (0..wide.len()).filter(|at| wide[*at] == 0x1b).any(|at| asks(&wide[at + 1..]))
}

/// Whether the sequence after an ESC asks something.
fn asks(behind: &[u8]) -> bool {
    let plain: Vec<u8> = behind
        .iter()
        .copied()
        .take_while(|byte| *byte != 0x1b)
        .filter(|byte| (0x20..0x7f).contains(byte))
        .collect();
    match plain.as_slice() {
        [b'Z' | b'P' | b'_', ..] => true,
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| (0x40..0x7f).contains(byte)) else {
                return false;
            };
            let (inner, last) = (&rest[..end], rest[end]);
            let has = |byte: u8| inner.contains(&byte);
            let mode = |wanted: &str| {
                inner.split(|byte| b"?;".contains(byte)).any(|mode| mode == wanted.as_bytes())
            };
            match last {
                b'n' | b'c' | b't' | b'|' | b'y' | b'w' => true,
                b'p' => has(b'$'),
                b'q' => has(b'>'),
                b'x' => !has(b'$') && !has(b'*'),
                b'u' => has(b'?') || has(b'$') || has(b'&'),
                b'm' | b'g' | b'S' => has(b'?'),
                b'R' => has(b'#'),
                b'h' => has(b'?') && ["1004", "2031", "2048", "38"].into_iter().any(mode),
                b'l' => has(b'?') && mode("2"),
                _ => false,
            }
        }
        [b']', ..] => {
            let string = behind.iter().copied().take_while(|byte| !matches!(byte, 0x07 | 0x1b));
            let text: Vec<u8> = string.filter(|byte| (0x20..0x7f).contains(byte)).collect();
            let text = String::from_utf8_lossy(text.strip_prefix(b"]").unwrap_or_default());
            let (number, content) = text.split_once(';').unwrap_or((&text, ""));
            let named = ["0", "1", "2", "7", "8", "133"].contains(&number);
            // Whether it ends does not matter here: what follows may end it.
            !named && (content.contains('?') || number == "1337" || number == "52")
        }
        _ => false,
    }
}

#[test]
fn every_query_is_blanked_and_what_stands_around_it_stays() {
    let queries: [&str; 43] = [
        "\x1b[5n",
        "\x1b[6n",
        "\x1b[?6n",
        "\x1b[?996n",
        "\x1b[>5n",
        "\x1b[c",
        "\x1b[0c",
        "\x1b[>c",
        "\x1b[>0c",
        "\x1b[=c",
        "\x1bZ",
        "\x1b[>q",
        "\x1b[>0q",
        "\x1b[?25$p",
        "\x1b[4$p",
        "\x1bP$qm\x1b\\",
        "\x1bP+q544e\x1b\\",
        "\x1b]4;1;?\x07",
        "\x1b]10;?\x07",
        "\x1b]11;?\x1b\\",
        "\x1b]12;?\x07",
        "\x1b]52;c;?\x07",
        "\x1b]52;c;QUJD\x07",
        "\x1b[?u",
        "\x1b[14t",
        "\x1b[18t",
        "\x1b[21t",
        "\x1b[22;2t",
        "\x05",
        "\x1b[x",
        "\x1b[1$w",
        "\x1b['|",
        "\x1b[1;1;1;1;1;1*y",
        "\x1b[?1;1;0S",
        "\x1b[?4m",
        "\x1b_Gi=31,a=q;AAAA\x1b\\",
        "\x1b]1337;ReportCellSize\x07",
        "\u{9b}6n",
        "\u{9d}11;?\x07",
        "\x1b[?1004h",
        "\x1b[?2048h",
        "\x1bPtmux;\x1b\x1b[6n\x1b\\",
        "\x1b[\x0b6n",
    ];
    for query in queries {
        assert!(is_answered(query.as_bytes()), "the test does not know {query:?}");
        let output = format!("before {query}after\r\n");
        let shown = watched(output.as_bytes());
        assert!(!is_answered(&shown), "{query:?} is left as {shown:?}");
        assert!(
            shown.starts_with(b"before ") && shown.ends_with(b"after\r\n"),
            "{query:?}: {shown:?}"
        );
    }
    assert_eq!(watched(b"a\x9b6nb"), b"ab", "as an 8-bit terminal reads it");
    let broken = watched(b"\x1b]4;1;\x1b=?\x07");
    assert_eq!(broken, b"\x1b=?\x07", "a terminal that goes on with the string would be asked");
}

#[test]
fn drawing_sequences_are_shown_unchanged() {
    for output in [
        "plain text, äöü, 漢字, 曛5n and \u{1f600}\r\n\t\x08\x07",
        "\x1b[31;1mred\x1b[0m\x1b[38:2::1:2:3m\x1b[2J\x1b[H\x1b[10;20H\x1b[K\x1b[3A\x1b[5;20r\x1b[4h",
        "\x1b[?1049h\x1b[?25l\x1b[?1;2004h\x1b[?1002;1006h\x1b[?2026l",
        "\x1b7\x1b8\x1b=\x1b>\x1bM\x1bc\x1b(B\x1b)0\x1b#8\x0e\x0f",
        "\x1b]0;what is this?\x07\x1b]2;title\x1b\\\x1b]8;;https://example.com/?a=b\x1b\\link\x1b]8;;\x1b\\",
        "\x1b]4;1;rgb:ff/00/00\x07\x1b]11;#102030\x1b\\\x1b]112\x07\x1b]133;A\x07",
        "\x1b[2 q\x1b[!p\x1b[>4;2m\x1b[>1u\x1b[<u\x1b[?2J",
    ] {
        let shown = QueryFilter::new(0).show(0, output.as_bytes(), false);
        assert_eq!(String::from_utf8_lossy(&shown), output);
    }
}

#[test]
fn only_live_queries_reach_the_keyboards_owner() {
    let output = b"old \x1b[6n new \x1b[6n";
    let mut filter = QueryFilter::new(9);
    assert_eq!(filter.show(0, output, true), b"old \0\0\0\0 new \x1b[6n");
    let mut filter = QueryFilter::new(9);
    assert_eq!(filter.show(0, output, false), b"old \0\0\0\0 new \0\0\0\0");
    let mut filter = QueryFilter::new(u64::MAX);
    assert_eq!(filter.show(0, output, true), b"old \0\0\0\0 new \0\0\0\0");
}

#[test]
fn a_query_belongs_to_where_it_began() {
    let mut filter = QueryFilter::new(2);
    assert_eq!(
        filter.show(0, b"\x1b[6n\x1b[6n", true),
        b"\0\0\0\0\x1b[6n",
        "it began in the replay"
    );
    let mut filter = QueryFilter::new(0);
    assert_eq!(filter.show(0, b"\x1b[", true), b"\x1b[", "nothing live is held for who types");
    assert_eq!(
        filter.show(2, b"6n\x1b[6n", false),
        b"6n\0\0\0\0",
        "the keyboard was lost in between"
    );
}

#[test]
fn a_gap_gives_up_what_is_held() {
    let mut filter = QueryFilter::new(0);
    assert_eq!(filter.show(0, b"a\x1b]0;tit", false), b"a");
    assert_eq!(filter.cut(), [NUL; 7]);
    assert_eq!(filter.show(100, b"le", false), b"le");
    assert_eq!(filter.show(102, b"\x1b]0;x\x1b", false), b"");
    assert_eq!(filter.cut(), [NUL; 6]);
}

#[test]
fn a_sequence_without_an_end_is_not_held_forever() {
    for begun in [&b"\x1b["[..], b"\x1b]0;", b"\x1bP", b"\x1b"] {
        let mut filter = QueryFilter::new(0);
        let output = [begun, &vec![b' '; 3 * HELD_BYTES_MAX]].concat();
        let shown = filter.show(0, &output, false);
        assert!(filter.held.len() <= HELD_BYTES_MAX && shown.len() > HELD_BYTES_MAX, "{begun:?}");
        let rest = filter.show(output.len() as u64, b"6n\x07\x1b\\\x1b[1mtext", false);
        assert!(rest.ends_with(b"\x1b[1mtext"), "{begun:?}: {rest:?}");
        assert!(!is_answered(&[shown, rest].concat()), "{begun:?}");
    }
}

/// Pieces of which queries, their likes and their disguises are made.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |bytes: &[u8]| Just(bytes.to_vec());
    prop_oneof![
        3 => bytes(b"\x1b"),
        3 => bytes(b"["),
        2 => bytes(b"]"),
        1 => bytes(b"P"),
        1 => bytes(b"_G"),
        1 => bytes(b"k"),
        1 => bytes(b"X"),
        2 => bytes(b"?"),
        1 => bytes(b">"),
        1 => bytes(b"$"),
        2 => bytes(b"6n"),
        1 => bytes(b"c"),
        1 => bytes(b"Z"),
        1 => bytes(b"18t"),
        1 => bytes(b"1004h"),
        1 => bytes(b"1m"),
        1 => bytes(b"11;"),
        1 => bytes(b"0;"),
        2 => bytes(b"\x07"),
        2 => bytes(b"\\"),
        1 => bytes(b"\x05"),
        1 => bytes(b"\x18"),
        1 => bytes(b"\x00"),
        1 => bytes(b"\x7f"),
        1 => bytes(b"\n"),
        2 => bytes(b"\xc2"),
        2 => bytes(b"\x9b"),
        1 => bytes(b"\x9c"),
        1 => bytes(b"\x9d"),
        1 => bytes(b"\xe6\x9b"),
        1 => bytes(b"\xe0"),
        1 => bytes("ä".as_bytes()),
        1 => bytes(b"text"),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ]
}

fn output() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(fragment(), 0..40).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_that_is_replayed_or_watched_is_answered(output in output()) {
        let shown = watched(&output);
        prop_assert!(!is_answered(&shown), "{:?} is left as {:?}", output, shown);
    }

    #[test]
    fn every_split_is_shown_the_same(
        output in output(),
        cuts in proptest::collection::vec(0_usize..120, 0..8),
        live_from in 0_u64..120,
        has_keyboard: bool,
    ) {
        let mut whole = QueryFilter::new(live_from);
        let mut expected = whole.show(0, &output, has_keyboard);
        expected.extend(whole.cut());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(output.len())).collect();
        cuts.extend([0, output.len()]);
        cuts.sort_unstable();
        let mut split = QueryFilter::new(live_from);
        let mut shown = Vec::new();
        for piece in cuts.windows(2) {
            shown.extend(split.show(piece[0] as u64, &output[piece[0]..piece[1]], has_keyboard));
            // It never gets ahead of its input.
            prop_assert!(shown.len() <= piece[1]);
        }
        shown.extend(split.cut());
        prop_assert_eq!(&shown, &expected);
        prop_assert_eq!(shown.len(), output.len());
    }

    #[test]
    fn live_output_for_who_types_is_unchanged(output in output()) {
        let mut filter = QueryFilter::new(0);
        let mut shown = filter.show(0, &output, true);
        shown.extend(filter.cut());
        prop_assert_eq!(shown, output);
    }

    #[test]
    fn text_is_unchanged(text in "\\PC*") {
        let shown = QueryFilter::new(0).show(0, text.as_bytes(), false);
        prop_assert_eq!(String::from_utf8_lossy(&shown), text);
    }
}
