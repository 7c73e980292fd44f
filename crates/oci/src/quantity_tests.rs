//! Values of quantities, and texts that must not make the parser panic.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|_| panic!("{text} is a quantity"))
}

#[test]
fn values_are_exact() {
    let cases: &[(&str, i64, i64, &str)] = &[
        ("0", 0, 0, "0"),
        ("1", 1, 1000, "1"),
        ("100m", 1, 100, "100m"),
        ("0.1", 1, 100, "100m"),
        (".5", 1, 500, "500m"),
        ("1.", 1, 1000, "1"),
        ("-1.5", -2, -1500, "-1500m"),
        ("+2", 2, 2000, "2"),
        ("1500m", 2, 1500, "1500m"),
        ("1k", 1000, 1_000_000, "1k"),
        ("1000", 1000, 1_000_000, "1k"),
        ("1Ki", 1024, 1_024_000, "1Ki"),
        ("1.5Gi", 1_610_612_736, 1_610_612_736_000, "1536Mi"),
        ("128974848", 128_974_848, 128_974_848_000, "128974848"),
        ("129e6", 129_000_000, 129_000_000_000, "129e6"),
        ("129M", 129_000_000, 129_000_000_000, "129M"),
        ("123Mi", 128_974_848, 128_974_848_000, "123Mi"),
        ("1E", 1_000_000_000_000_000_000, i64::MAX, "1E"),
        ("1e3", 1000, 1_000_000, "1e3"),
        ("1E3", 1000, 1_000_000, "1e3"),
        ("1e-3", 1, 1, "1e-3"),
        ("5u", 1, 1, "5u"),
        ("1n", 1, 1, "1n"),
        ("0.1n", 1, 1, "1n"),
        ("0.0000000001", 1, 1, "1n"),
        ("1e-400", 1, 1, "1e-9"),
        ("0.5Ki", 512, 512_000, "512"),
        ("0.0001Ki", 1, 103, "102400u"),
        ("8Ei", i64::MAX, i64::MAX, "9223372036854775807"),
        ("1e400", i64::MAX, i64::MAX, "9223372036854775807"),
        ("99999999999999999999999999999999999999999999", i64::MAX, i64::MAX, "9223372036854775807"),
        ("0000000000000000000000000000000000000000000000001", 1, 1000, "1"),
        ("1.00000000000000000000000000000000000000000001", 2, 1001, "1000000001n"),
    ];
    for (text, value, milli, shown) in cases {
        let got = parse(text);
        assert_eq!((got.value(), got.milli_value()), (*value, *milli), "{text}");
        assert_eq!(got.to_string(), *shown, "{text}");
    }
}

#[test]
fn invalid_quantities_are_refused() {
    for text in
        ["", "-", ".", "1.2.3", "1 ", " 1", "1ki", "1KI", "1K", "Mi", "1e", "1e+", "1ee3", "1e3m", "0x10", "1i", "1Zi"]
    {
        assert_eq!(text.parse::<Quantity>(), Err(QuantityError), "{text:?}");
    }
}

#[test]
fn spellings_of_a_quantity_are_equal() {
    assert_eq!(parse("1Gi"), parse("1073741824"));
    assert_eq!(parse("0.5"), parse("500m"));
    assert!(parse("1G") < parse("1Gi"));
    assert_eq!((parse("100m") + parse("0.9")).to_string(), "1");
    assert_eq!((parse("8Ei") + parse("8Ei")).value(), i64::MAX);
}

#[test]
fn division_of_the_downward_api() {
    assert_eq!(parse("1500m").divided(parse("1"), true), 2);
    assert_eq!(parse("1500m").divided(parse("1m"), true), 1500);
    assert_eq!(parse("100Mi").divided(parse("1Mi"), false), 100);
    assert_eq!(parse("100M").divided(parse("1Mi"), false), 96);
    assert_eq!(parse("1").divided(parse("0"), true), 0);
}

#[test]
fn byte_counts_are_computed() {
    let cases = [
        ("64Gi", Some(64 << 30)),
        ("1000", Some(1000)),
        ("0", Some(0)),
        ("1Ki", Some(1024)),
        ("Gi", None),
        ("1.5Gi", None),
        ("64G", None),
        ("-1", None),
        ("99999999Ti", None),
    ];
    for (text, want) in cases {
        assert_eq!(parse_bytes(text), want, "{text}");
    }
    for text in ["64Gi", "1000", "0", "3Ki"] {
        assert_eq!(parse_bytes(text).map(show_bytes).as_deref(), Some(text));
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[-+]?[0-9.]{0,50}([eE][-+]?[0-9]{0,12}|[A-Za-z]{0,3})") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let shown = quantity.to_string();
            prop_assert_eq!(shown.parse::<Quantity>(), Ok(quantity), "{}", shown);
            prop_assert!(quantity.value() >= -i64::MAX);
        }
    }

    #[test]
    fn whole_numbers_keep_their_value(value in any::<i64>().prop_filter("in range", |v| *v > i64::MIN)) {
        let quantity: Quantity = value.to_string().parse().expect("a number is a quantity");
        prop_assert_eq!(quantity.value(), value);
        prop_assert_eq!(Quantity::bytes(value).to_string().parse::<Quantity>(), Ok(quantity));
    }
}
