//! JSON bodies: flattened one level, each element byte for byte.

use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// The texts of the elements that `body` flattens to.
fn elements(body: &str) -> Result<Vec<String>, String> {
    let Some(payload) = flatten(body.as_bytes())? else { return Ok(vec![]) };
    let Payload::Json { text, ends } = payload else { panic!("JSON gives JSON") };
    assert_eq!(ends.last().map(|e| *e as usize), Some(text.len()));
    let mut start = 0;
    let cut = |end: &u32| {
        let element = &text[start..*end as usize];
        start = *end as usize;
        assert_eq!(element.last(), Some(&b','));
        String::from_utf8(element[..element.len() - 1].to_vec()).unwrap()
    };
    Ok(ends.iter().map(cut).collect())
}

fn answer(body: Body) -> Vec<u8> {
    futures::executor::block_on(body.collect()).expect("infallible").to_bytes().to_vec()
}

#[test]
fn one_array_level_is_flattened_and_every_text_is_kept() {
    for (body, expected) in [
        ("12345678901234567890", vec!["12345678901234567890"]),
        ("1.0e2", vec!["1.0e2"]),
        ("-0.0", vec!["-0.0"]),
        (" \r\n\t\"a\\u00e9b\" ", vec![r#""a\u00e9b""#]),
        ("null", vec!["null"]),
        (r#"{"b":1, "a" :2,"b":3}"#, vec![r#"{"b":1, "a" :2,"b":3}"#]),
        ("[1, 2 ,3]", vec!["1", "2", "3"]),
        ("[ 12345678901234567890 , 1.0e2 ]", vec!["12345678901234567890", "1.0e2"]),
        ("[[1,2], [3,4]]", vec!["[1,2]", "[3,4]"]),
        ("[[[1,2,3]]]", vec!["[[1,2,3]]"]),
        ("[[]]", vec!["[]"]),
        ("[\"[\",\"]\",\"\\\"\"]", vec!["\"[\"", "\"]\"", "\"\\\"\""]),
        ("[\"héllo\", \"\u{1F600}\"]", vec!["\"héllo\"", "\"\u{1F600}\""]),
        ("[]", vec![]),
        (" [ ] ", vec![]),
    ] {
        assert_eq!(elements(body), Ok(expected.into_iter().map(str::to_owned).collect()), "{body}");
    }
}

#[test]
fn what_is_not_one_json_value_is_refused() {
    for body in [
        "",
        " ",
        "\n",
        "[",
        "]",
        "[1",
        "[1,]",
        "[,1]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "1 2",
        "[1] [2]",
        "[1]x",
        "nul",
        "NaN",
        "+1",
        "01",
        "1.",
        ".5",
        "'a'",
        "\"a",
        "\"\u{1}\"",
        "\"\\x\"",
        "\u{feff}1",
        "[1]\u{c}",
        "\u{c}[1]",
        "// c\n1",
    ] {
        assert!(elements(body).is_err(), "{body:?} was taken");
    }
    assert!(flatten(b"\"\xff\"").is_err());
    assert!(flatten(b"[\"\xc3\"]").is_err());
}

#[test]
fn nesting_is_bounded_and_brackets_in_strings_do_not_count() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(elements(&nested(MAX_DEPTH + 1)).is_ok(), "one level is flattened away");
    assert!(elements(&nested(MAX_DEPTH + 2)).is_err());
    assert!(elements(&nested(200_000)).is_err(), "no recursion, no overflow");
    assert!(elements(&format!("[\"{}\"]", "[{".repeat(1000))).is_ok());
    assert!(elements(&format!("[{}1]", "[1,{}],".repeat(1000))).is_ok());
    let object = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    assert!(elements(&object(MAX_DEPTH)).is_ok());
    assert!(elements(&object(MAX_DEPTH + 1)).is_err());
}

#[test]
fn a_hundred_thousand_elements_come_back_as_they_went_in() {
    let body = format!("[{}]", (0..100_000).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let payload = flatten(body.as_bytes()).unwrap().unwrap();
    assert_eq!(payload.length(), 100_000);
    assert_eq!(answer(array(vec![payload])), body.as_bytes());
}

#[test]
fn the_answer_is_one_array_over_all_parts() {
    let part = |body: &str| flatten(body.as_bytes()).unwrap().unwrap();
    assert_eq!(answer(array(vec![])), b"[]");
    assert_eq!(answer(array(vec![part("1")])), b"[1]");
    assert_eq!(answer(array(vec![part("[1, 2]"), part("{\"a\":1}")])), b"[1,2,{\"a\":1}]");
    let long = format!("\"{}\"", "x".repeat(ONE_PIECE));
    let expected = format!("[{long},1,{long}]");
    assert_eq!(answer(array(vec![part(&long), part("1"), part(&long)])), expected.as_bytes());
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("\\PC{0,4}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_comes_back_equal(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let expected = match &value {
            Value::Array(elements) => elements.clone(),
            one => vec![one.clone()],
        };
        let parts = flatten(text.as_bytes()).unwrap().into_iter().collect();
        let got: Value = serde_json::from_slice(&answer(array(parts))).unwrap();
        let again: Value = serde_json::from_str(&serde_json::to_string(&expected).unwrap()).unwrap();
        prop_assert_eq!(got, again);
    }

    #[test]
    fn what_is_taken_is_valid_json_and_what_is_not_is_not(text in "[\\[\\]{}:,\"\\\\a1e. \\-]{0,24}") {
        let valid = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(flatten(text.as_bytes()).is_ok(), valid);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(flatten(&bytes));
    }
}
