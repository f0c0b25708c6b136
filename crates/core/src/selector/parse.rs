//! Tokens to program: a Pratt parser that emits postfix operations as it goes.
//!
//! Binding, loosest first: OR, AND, NOT, equality (`=` `<>` IS), relation (`<` `>` BETWEEN IN
//! LIKE), sum, product, sign. Types that the text alone shows to be wrong are faults here (3.8.1: a
//! provider checks a selector when it is given); the rest is decided for each message.
//!
//! Invariants: recursion is bounded by SELECTOR_DEPTH_MAX times the number of binding levels; jumps
//! go forward only.

use towline_types::limits;

use super::like::Like;
use super::program::{Calculation, Comparison, HEIGHT_MAX, Op, Program, StackEffect};
use super::token::{Sign, Token, TokenAt, Word, tokens};
use super::{IndexKey, SelectorError};

type Parsed<T> = Result<T, SelectorError>;

const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const EQUALITY: u8 = 4;
const RELATION: u8 = 5;
const SUM: u8 = 6;
const PRODUCT: u8 = 7;
const PREFIX: u8 = 8;

/// What the text alone says about an expression's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A property: whatever the message holds.
    Any,
    Condition,
    Number,
    Text,
}

/// An expression that was emitted.
struct Operand {
    kind: Kind,
    /// Index of its first operation.
    start: usize,
    /// Byte at which it starts.
    position: usize,
    /// See [`super::Selector::index_key`].
    key: Option<IndexKey>,
}

struct Parser<'t> {
    tokens: std::iter::Peekable<std::vec::IntoIter<TokenAt<'t>>>,
    /// Where the text ends, for faults there.
    end: usize,
    ops: Vec<Op>,
    height: usize,
    height_max: usize,
    depth: usize,
}

/// Compiles a selector.
pub(super) fn parse(text: &str) -> Parsed<(Program, Option<IndexKey>)> {
    if text.len() > limits::SELECTOR_BYTES_MAX {
        let limit = limits::SELECTOR_BYTES_MAX;
        return Err(SelectorError::new(limit, format!("selector is longer than {limit} bytes")));
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok((Program::new(vec![Op::Boolean(true)], 1), None));
    }
    let mut parser = Parser {
        tokens: tokens.into_iter().peekable(),
        end: text.len(),
        ops: Vec::new(),
        height: 0,
        height_max: 0,
        depth: 0,
    };
    let whole = parser.expression(OR)?;
    if parser.tokens.peek().is_some() {
        return Err(parser.unexpected("an operator, AND, OR, or the end"));
    }
    whole.require(Kind::Condition, "a selector is a condition")?;
    assert_eq!(parser.height, 1, "a program leaves one value");
    Ok((Program::new(parser.ops, parser.height_max), whole.key))
}

impl Operand {
    /// Refuses an expression that can never be of a kind.
    fn require(&self, kind: Kind, rule: &str) -> Parsed<()> {
        if self.kind == kind || self.kind == Kind::Any {
            return Ok(());
        }
        let found = match self.kind {
            Kind::Any => "a property",
            Kind::Condition => "a condition",
            Kind::Number => "a number",
            Kind::Text => "a string",
        };
        Err(SelectorError::new(self.position, format!("{rule}; this is {found}")))
    }
}

/// How tightly an operator between two operands binds.
fn power(token: &Token<'_>) -> Option<u8> {
    match token {
        Token::Word(Word::Or) => Some(OR),
        Token::Word(Word::And) => Some(AND),
        Token::Word(Word::Is) | Token::Sign(Sign::Equal | Sign::NotEqual) => Some(EQUALITY),
        Token::Word(Word::Between | Word::In | Word::Like | Word::Not)
        | Token::Sign(Sign::Less | Sign::LessOrEqual | Sign::Greater | Sign::GreaterOrEqual) => {
            Some(RELATION)
        }
        Token::Sign(Sign::Plus | Sign::Minus) => Some(SUM),
        Token::Sign(Sign::Times | Sign::Divide) => Some(PRODUCT),
        Token::Name(_) | Token::Text(_) | Token::Exact(_) | Token::Approximate(_) => None,
        Token::Word(Word::Escape | Word::False | Word::Null | Word::True)
        | Token::Sign(Sign::Open | Sign::Close | Sign::Comma) => None,
    }
}

impl<'t> Parser<'t> {
    /// An expression of operators that bind at least as tightly as `least`.
    fn expression(&mut self, least: u8) -> Parsed<Operand> {
        let mut left = self.prefix()?;
        while let Some(placed) = self.tokens.peek() {
            let position = placed.position;
            let Some(power) = power(&placed.token).filter(|power| *power >= least) else { break };
            let Some(TokenAt { token, .. }) = self.tokens.next() else { break };
            left = match token {
                Token::Word(word) => self.word(left, word, position, power)?,
                Token::Sign(sign) => self.sign(left, sign, power)?,
                Token::Name(_) | Token::Text(_) | Token::Exact(_) | Token::Approximate(_) => {
                    unreachable!("only words and signs bind")
                }
            };
        }
        Ok(left)
    }

    /// An operand: a literal, a property, a group, or one of these behind a sign or NOT.
    fn prefix(&mut self) -> Parsed<Operand> {
        let start = self.ops.len();
        let Some(TokenAt { token, position }) = self.tokens.next() else {
            return Err(SelectorError::new(self.end, "text ends where a value was expected"));
        };
        let (kind, op) = match token {
            Token::Name(name) => (Kind::Any, Op::Property(name.into())),
            Token::Text(text) => (Kind::Text, Op::Text(text.into())),
            Token::Exact(value) => (Kind::Number, Op::Long(self.signed(value, false, position)?)),
            Token::Approximate(value) => (Kind::Number, Op::Double(value)),
            Token::Word(Word::True) => (Kind::Condition, Op::Boolean(true)),
            Token::Word(Word::False) => (Kind::Condition, Op::Boolean(false)),
            Token::Word(Word::Not) => return self.nested(position, |parser| parser.not(position)),
            Token::Sign(Sign::Open) => return self.nested(position, Parser::group),
            Token::Sign(Sign::Plus) => {
                return self.nested(position, |parser| parser.signed_operand(position, false));
            }
            Token::Sign(Sign::Minus) => {
                return self.nested(position, |parser| parser.signed_operand(position, true));
            }
            other @ (Token::Word(_) | Token::Sign(_)) => {
                return Err(SelectorError::new(
                    position,
                    format!("a value was expected, not {}", describe(&other)),
                ));
            }
        };
        self.emit(op, position)?;
        Ok(Operand { kind, start, position, key: None })
    }

    /// Runs a part of the parser one level deeper.
    fn nested<T>(
        &mut self,
        position: usize,
        part: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
        if self.depth >= limits::SELECTOR_DEPTH_MAX {
            return Err(too_deep(position));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    fn group(&mut self) -> Parsed<Operand> {
        let inner = self.expression(OR)?;
        self.expect(&Token::Sign(Sign::Close), "')'")?;
        Ok(inner)
    }

    fn not(&mut self, position: usize) -> Parsed<Operand> {
        let inner = self.expression(NOT)?;
        inner.require(Kind::Condition, "NOT takes a condition")?;
        self.emit(Op::Not, position)?;
        Ok(Operand { kind: Kind::Condition, position, key: None, ..inner })
    }

    fn signed_operand(&mut self, position: usize, negative: bool) -> Parsed<Operand> {
        let start = self.ops.len();
        if let Some(TokenAt { token: Token::Exact(value), .. }) = self.tokens.peek() {
            let value = *value;
            self.tokens.next();
            let value = self.signed(value, negative, position)?;
            self.emit(Op::Long(value), position)?;
            return Ok(Operand { kind: Kind::Number, start, position, key: None });
        }
        let inner = self.expression(PREFIX)?;
        inner.require(Kind::Number, "a sign stands before a number")?;
        self.emit(if negative { Op::Negate } else { Op::Keep }, position)?;
        Ok(Operand { kind: Kind::Number, start, position, key: None })
    }

    fn signed(&self, magnitude: u64, negative: bool, position: usize) -> Parsed<i64> {
        let value = if negative {
            0_i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        };
        value.ok_or_else(|| SelectorError::new(position, "number is out of the range of a long"))
    }

    /// `+ - * / = <> < <= > >=` behind their left operand.
    fn sign(&mut self, left: Operand, sign: Sign, power: u8) -> Parsed<Operand> {
        let right = self.expression(power.saturating_add(1))?;
        let (op, kind) = match sign {
            Sign::Equal => (Op::Compare(Comparison::Equal), None),
            Sign::NotEqual => (Op::Compare(Comparison::NotEqual), None),
            Sign::Less => (Op::Compare(Comparison::Less), Some(Kind::Condition)),
            Sign::LessOrEqual => (Op::Compare(Comparison::LessOrEqual), Some(Kind::Condition)),
            Sign::Greater => (Op::Compare(Comparison::Greater), Some(Kind::Condition)),
            Sign::GreaterOrEqual => {
                (Op::Compare(Comparison::GreaterOrEqual), Some(Kind::Condition))
            }
            Sign::Plus => (Op::Calculate(Calculation::Add), Some(Kind::Number)),
            Sign::Minus => (Op::Calculate(Calculation::Subtract), Some(Kind::Number)),
            Sign::Times => (Op::Calculate(Calculation::Multiply), Some(Kind::Number)),
            Sign::Divide => (Op::Calculate(Calculation::Divide), Some(Kind::Number)),
            Sign::Open | Sign::Close | Sign::Comma => unreachable!("these do not bind"),
        };
        if let Some(kind) = kind {
            let rule = match kind {
                Kind::Number => "arithmetic takes numbers",
                _ => "< <= > >= take numbers (strings and booleans know only = and <>)",
            };
            left.require(Kind::Number, rule)?;
            right.require(Kind::Number, rule)?;
        }
        let key = if sign == Sign::Equal { self.key(&left, &right) } else { None };
        self.emit(op, left.position)?;
        Ok(Operand { kind: kind.unwrap_or(Kind::Condition), key, ..left })
    }

    /// Words behind their left operand.
    fn word(&mut self, left: Operand, word: Word, position: usize, power: u8) -> Parsed<Operand> {
        match word {
            Word::And | Word::Or => self.join(left, word, power),
            Word::Is => {
                let negated = self.accept(&Token::Word(Word::Not));
                self.expect(&Token::Word(Word::Null), "NULL")?;
                self.test(left, Op::IsNull { negated }, "IS NULL", position)
            }
            Word::Not => {
                let Some(TokenAt { token: Token::Word(word), position }) = self.tokens.next()
                else {
                    return Err(SelectorError::new(position, "NOT does not belong here"));
                };
                self.range(left, word, position, true)
            }
            other => self.range(left, other, position, false),
        }
    }

    /// AND, OR: the right side is skipped when the left one decides.
    fn join(&mut self, left: Operand, word: Word, power: u8) -> Parsed<Operand> {
        let and = word == Word::And;
        let rule = if and { "AND joins conditions" } else { "OR joins conditions" };
        left.require(Kind::Condition, rule)?;
        let skip = self.ops.len();
        self.emit(if and { Op::SkipIfFalse(0) } else { Op::SkipIfTrue(0) }, left.position)?;
        let right = self.expression(power.saturating_add(1))?;
        right.require(Kind::Condition, rule)?;
        self.emit(if and { Op::And } else { Op::Or }, right.position)?;
        let end = self.ops.len();
        assert!(end > skip, "jumps go forward");
        self.ops[skip] = if and { Op::SkipIfFalse(end) } else { Op::SkipIfTrue(end) };
        let key = if and { left.key.or(right.key) } else { None };
        Ok(Operand { kind: Kind::Condition, start: left.start, position: left.position, key })
    }

    /// BETWEEN, IN, LIKE.
    fn range(
        &mut self,
        left: Operand,
        word: Word,
        position: usize,
        negated: bool,
    ) -> Parsed<Operand> {
        match word {
            Word::Between => {
                let low = self.expression(SUM)?;
                self.expect(&Token::Word(Word::And), "AND")?;
                let high = self.expression(SUM)?;
                for operand in [&left, &low, &high] {
                    operand.require(Kind::Number, "BETWEEN takes numbers")?;
                }
                self.emit(Op::Between { negated }, position)?;
                Ok(Operand { kind: Kind::Condition, key: None, ..left })
            }
            Word::In => {
                let list = self.list()?;
                self.test(left, Op::In { list, negated }, "IN", position)
            }
            Word::Like => {
                let (pattern, place) = self.text("a pattern in quotes")?;
                let escape = if self.accept(&Token::Word(Word::Escape)) {
                    Some(self.escape()?)
                } else {
                    None
                };
                let pattern = Like::new(&pattern, escape)
                    .map_err(|message| SelectorError::new(place, message))?;
                self.test(left, Op::Like { pattern: Box::new(pattern), negated }, "LIKE", position)
            }
            other => Err(SelectorError::new(
                position,
                format!("BETWEEN, IN or LIKE was expected, not {}", describe(&Token::Word(other))),
            )),
        }
    }

    /// Emits a test that may only stand behind a property.
    fn test(&mut self, left: Operand, op: Op, name: &str, position: usize) -> Parsed<Operand> {
        if !matches!(self.ops.get(left.start..), Some([Op::Property(_)])) {
            return Err(SelectorError::new(
                left.position,
                format!("{name} takes a property's name on its left"),
            ));
        }
        self.emit(op, position)?;
        Ok(Operand { kind: Kind::Condition, key: None, ..left })
    }

    /// The sorted strings of an IN list.
    fn list(&mut self) -> Parsed<Box<[Box<str>]>> {
        self.expect(&Token::Sign(Sign::Open), "'('")?;
        let mut list: Vec<Box<str>> = Vec::new();
        loop {
            list.push(self.text("a string in quotes")?.0.into());
            if !self.accept(&Token::Sign(Sign::Comma)) {
                break;
            }
        }
        self.expect(&Token::Sign(Sign::Close), "',' or ')'")?;
        list.sort_unstable();
        list.dedup();
        Ok(list.into())
    }

    fn escape(&mut self) -> Parsed<char> {
        let (text, position) = self.text("an escape character in quotes")?;
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => Ok(character),
            (Some(_) | None, _) => {
                Err(SelectorError::new(position, "ESCAPE takes exactly one character"))
            }
        }
    }

    /// The index key of `left = right`.
    fn key(&self, left: &Operand, right: &Operand) -> Option<IndexKey> {
        let left = self.ops.get(left.start..right.start)?;
        let right = self.ops.get(right.start..)?;
        let (name, text) = match (left, right) {
            ([Op::Property(name)], [Op::Text(text)]) | ([Op::Text(text)], [Op::Property(name)]) => {
                (name, text)
            }
            (_, _) => return None,
        };
        match &**name {
            "JMSCorrelationID" => Some(IndexKey::CorrelationId(text.clone())),
            "JMSMessageID" => Some(IndexKey::MessageId(text.clone())),
            _ => None,
        }
    }

    fn emit(&mut self, op: Op, position: usize) -> Parsed<()> {
        let StackEffect { taken, left } = op.effect();
        assert!(self.height >= taken, "operands come before their operation");
        self.height = self.height - taken + left;
        self.height_max = self.height_max.max(self.height);
        self.ops.push(op);
        if self.height > HEIGHT_MAX { Err(too_deep(position)) } else { Ok(()) }
    }

    fn accept(&mut self, token: &Token<'t>) -> bool {
        self.tokens.next_if(|placed| placed.token == *token).is_some()
    }

    fn expect(&mut self, token: &Token<'t>, name: &str) -> Parsed<()> {
        if self.accept(token) { Ok(()) } else { Err(self.unexpected(name)) }
    }

    fn text(&mut self, what: &str) -> Parsed<(String, usize)> {
        match self.tokens.peek() {
            Some(TokenAt { token: Token::Text(text), position }) => {
                let found = (text.clone(), *position);
                self.tokens.next();
                Ok(found)
            }
            Some(_) | None => Err(self.unexpected(what)),
        }
    }

    /// The fault that the next token is not what was expected.
    fn unexpected(&mut self, expected: &str) -> SelectorError {
        match self.tokens.peek() {
            Some(TokenAt { token, position }) => SelectorError::new(
                *position,
                format!("{expected} was expected, not {}", describe(token)),
            ),
            None => {
                SelectorError::new(self.end, format!("text ends where {expected} was expected"))
            }
        }
    }
}

fn too_deep(position: usize) -> SelectorError {
    let limit = limits::SELECTOR_DEPTH_MAX;
    SelectorError::new(position, format!("nested deeper than {limit} levels"))
}

/// A token as a fault names it.
fn describe(token: &Token<'_>) -> String {
    match token {
        Token::Name(name) => format!("the name {name}"),
        Token::Word(word) => format!("{word:?}").to_uppercase(),
        Token::Text(_) => "a string".into(),
        Token::Exact(_) | Token::Approximate(_) => "a number".into(),
        Token::Sign(sign) => match sign {
            Sign::Open => "'('",
            Sign::Close => "')'",
            Sign::Comma => "','",
            Sign::Plus => "'+'",
            Sign::Minus => "'-'",
            Sign::Times => "'*'",
            Sign::Divide => "'/'",
            Sign::Equal => "'='",
            Sign::NotEqual => "'<>'",
            Sign::Less => "'<'",
            Sign::LessOrEqual => "'<='",
            Sign::Greater => "'>'",
            Sign::GreaterOrEqual => "'>='",
        }
        .into(),
    }
}
