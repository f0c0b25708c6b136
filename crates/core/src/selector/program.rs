//! A compiled selector: postfix operations, evaluated on a stack of known height.
//!
//! Logic is three-valued (Jakarta Messaging 3.1, 3.8.1.2): unknown is [`Value::Null`]. Comparing
//! values of unlike type is false; strings and booleans know only `=` and `<>`. IN and LIKE ask
//! about strings: of anything else both they and their negations are unknown. Exact numbers wrap as
//! in Java; an exact division by zero, and arithmetic on what is no number, is unknown.

use std::cmp::Ordering;

use super::like::{Like, block_bytes};
use super::{Properties, Value};

/// Highest stack that a selector may need; more counts as nested too deeply.
pub(super) const HEIGHT_MAX: usize = 64;
/// Selectors that need no more run on a small stack, which is quicker to clear.
const HEIGHT_SMALL: usize = 8;

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Pushes a property's value.
    Property(Box<str>),
    /// Pushes a literal.
    Text(Box<str>),
    /// Pushes a literal.
    Long(i64),
    /// Pushes a literal.
    Double(f64),
    /// Pushes a literal.
    Boolean(bool),
    /// Two values become TRUE, FALSE or unknown.
    Compare(Comparison),
    /// Two numbers become one.
    Calculate(Calculation),
    /// One number changes its sign.
    Negate,
    /// One number stays; anything else becomes unknown.
    Keep,
    /// Negates one condition.
    Not,
    /// Joins two conditions.
    And,
    /// Joins two conditions.
    Or,
    /// Goes to this operation when the top of the stack is FALSE, and leaves it there.
    SkipIfFalse(usize),
    /// Goes to this operation when the top of the stack is TRUE, and leaves it there.
    SkipIfTrue(usize),
    /// Three values (value, low, high) become a condition.
    Between { negated: bool },
    /// Whether a string is in a sorted list.
    In { list: Box<[Box<str>]>, negated: bool },
    /// Whether a string matches a pattern.
    Like { pattern: Box<Like>, negated: bool },
    /// Whether there is no value.
    IsNull { negated: bool },
}

/// `=` and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// `+` and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calculation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// A whole selector.
#[derive(Clone, Debug)]
pub(super) struct Program {
    ops: Box<[Op]>,
    height: usize,
}

impl Program {
    /// `height` is the most values that are on the stack at one time.
    pub(super) fn new(ops: Vec<Op>, height: usize) -> Program {
        assert!(height >= 1, "a program leaves one value");
        assert!(height <= HEIGHT_MAX, "the parser refuses what needs a higher stack");
        Program { ops: ops.into(), height }
    }

    /// The properties that are asked for, in order, as often as they are.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().filter_map(|op| match op {
            Op::Property(name) => Some(&**name),
            _ => None,
        })
    }

    /// Bytes of memory that it takes, about: blocks of the allocator included.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_ops = self.ops.iter().map(|op| match op {
            Op::Property(text) | Op::Text(text) => block_bytes(text.len()),
            Op::In { list, .. } => {
                let of_texts: usize = list.iter().map(|text| block_bytes(text.len())).sum();
                block_bytes(size_of_val(&**list)) + of_texts
            }
            Op::Like { pattern, .. } => block_bytes(size_of::<Like>()) + pattern.memory_bytes(),
            Op::Long(_)
            | Op::Double(_)
            | Op::Boolean(_)
            | Op::Compare(_)
            | Op::Calculate(_)
            | Op::Negate
            | Op::Keep
            | Op::Not
            | Op::And
            | Op::Or
            | Op::SkipIfFalse(_)
            | Op::SkipIfTrue(_)
            | Op::Between { .. }
            | Op::IsNull { .. } => 0,
        });
        block_bytes(size_of_val(&*self.ops)) + of_ops.sum::<usize>()
    }

    /// The value that the program leaves; unknown when its patterns would have to go along more
    /// than `left` bytes of text, from which what they cost is taken.
    pub(super) fn evaluate<'a, P: Properties + ?Sized>(
        &'a self,
        properties: &'a P,
        left: &mut usize,
    ) -> Value<'a> {
        if self.height <= HEIGHT_SMALL {
            self.run::<HEIGHT_SMALL, P>(properties, left)
        } else {
            self.run::<HEIGHT_MAX, P>(properties, left)
        }
    }

    fn run<'a, const HEIGHT: usize, P: Properties + ?Sized>(
        &'a self,
        properties: &'a P,
        left: &mut usize,
    ) -> Value<'a> {
        let mut stack = Stack { values: [Value::Null; HEIGHT], height: 0 };
        let mut at = 0;
        while let Some(op) = self.ops.get(at) {
            at += 1;
            match op {
                Op::Property(name) => stack.push(properties.get(name)),
                Op::Text(text) => stack.push(Value::Text(text)),
                Op::Long(value) => stack.push(Value::Long(*value)),
                Op::Double(value) => stack.push(Value::Double(*value)),
                Op::Boolean(value) => stack.push(Value::Boolean(*value)),
                Op::SkipIfFalse(target) => {
                    if stack.top() == Value::Boolean(false) {
                        at = *target;
                    }
                }
                Op::SkipIfTrue(target) => {
                    if stack.top() == Value::Boolean(true) {
                        at = *target;
                    }
                }
                Op::Between { negated } => {
                    let high = stack.pop();
                    let low = stack.pop();
                    let value = stack.pop();
                    stack.push(between(value, low, high, *negated));
                }
                Op::Compare(_) | Op::Calculate(_) | Op::And | Op::Or => {
                    let right = stack.pop();
                    let left = stack.pop();
                    stack.push(op.of_two(left, right));
                }
                Op::Like { pattern, .. } => {
                    let value = stack.pop();
                    let text = if let Value::Text(text) = value { text } else { "" };
                    let cost = text.len().saturating_mul(pattern.weight());
                    match left.checked_sub(cost) {
                        Some(rest) => *left = rest,
                        None => return Value::Null,
                    }
                    stack.push(op.of_one(value));
                }
                Op::Negate | Op::Keep | Op::Not | Op::In { .. } | Op::IsNull { .. } => {
                    let value = stack.pop();
                    stack.push(op.of_one(value));
                }
            }
        }
        assert_eq!(stack.height, 1, "a program leaves one value");
        stack.top()
    }
}

/// Values in the making; the program was checked to fit.
struct Stack<'a, const HEIGHT: usize> {
    values: [Value<'a>; HEIGHT],
    height: usize,
}

impl<'a, const HEIGHT: usize> Stack<'a, HEIGHT> {
    fn push(&mut self, value: Value<'a>) {
        self.values[self.height] = value;
        self.height += 1;
    }

    fn pop(&mut self) -> Value<'a> {
        self.height -= 1;
        self.values[self.height]
    }

    fn top(&self) -> Value<'a> {
        self.values[self.height - 1]
    }
}

/// Values of the stack that an operation takes, and that it leaves in their stead.
pub(super) struct StackEffect {
    pub(super) taken: usize,
    pub(super) left: usize,
}

impl Op {
    /// How this operation changes the height of the stack.
    pub(super) fn effect(&self) -> StackEffect {
        let (taken, left) = match self {
            Op::Property(_) | Op::Text(_) | Op::Long(_) | Op::Double(_) | Op::Boolean(_) => (0, 1),
            Op::Compare(_) | Op::Calculate(_) | Op::And | Op::Or => (2, 1),
            Op::Between { .. } => (3, 1),
            Op::SkipIfFalse(_)
            | Op::SkipIfTrue(_)
            | Op::Negate
            | Op::Keep
            | Op::Not
            | Op::In { .. }
            | Op::Like { .. }
            | Op::IsNull { .. } => (1, 1),
        };
        StackEffect { taken, left }
    }

    fn of_two<'a>(&self, left: Value<'a>, right: Value<'a>) -> Value<'a> {
        match self {
            Op::Compare(comparison) => compare(*comparison, left, right),
            Op::Calculate(calculation) => calculate(*calculation, left, right),
            Op::And => and(left, right),
            Op::Or => or(left, right),
            _ => unreachable!("an operation on two values"),
        }
    }

    fn of_one<'a>(&self, value: Value<'a>) -> Value<'a> {
        match (self, value) {
            (Op::IsNull { negated }, value) => Value::Boolean((value == Value::Null) != *negated),
            (Op::Not, Value::Boolean(value)) => Value::Boolean(!value),
            (Op::Negate, Value::Long(value)) => Value::Long(value.wrapping_neg()),
            (Op::Negate, Value::Double(value)) => Value::Double(-value),
            (Op::Keep, Value::Long(_) | Value::Double(_)) => value,
            (Op::In { list, negated }, Value::Text(text)) => {
                let found = list.binary_search_by(|item| (**item).cmp(text)).is_ok();
                Value::Boolean(found != *negated)
            }
            (Op::Like { pattern, negated }, Value::Text(text)) => {
                Value::Boolean(pattern.matches(text) != *negated)
            }
            // IN and LIKE of what is no string among them: neither in the list nor out of it.
            (_, _) => Value::Null,
        }
    }
}

fn and<'a>(left: Value<'a>, right: Value<'a>) -> Value<'a> {
    match (left, right) {
        (Value::Boolean(false), _) | (_, Value::Boolean(false)) => Value::Boolean(false),
        (Value::Boolean(true), Value::Boolean(true)) => Value::Boolean(true),
        (_, _) => Value::Null,
    }
}

fn or<'a>(left: Value<'a>, right: Value<'a>) -> Value<'a> {
    match (left, right) {
        (Value::Boolean(true), _) | (_, Value::Boolean(true)) => Value::Boolean(true),
        (Value::Boolean(false), Value::Boolean(false)) => Value::Boolean(false),
        (_, _) => Value::Null,
    }
}

/// `NOT BETWEEN` is `value < low OR value > high` (3.8.1.2), which for unlike types is false too.
fn between<'a>(value: Value<'a>, low: Value<'a>, high: Value<'a>, negated: bool) -> Value<'a> {
    if negated {
        or(compare(Comparison::Less, value, low), compare(Comparison::Greater, value, high))
    } else {
        and(
            compare(Comparison::GreaterOrEqual, value, low),
            compare(Comparison::LessOrEqual, value, high),
        )
    }
}

fn compare<'a>(comparison: Comparison, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    let ordering = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Value::Null,
        (Value::Text(left), Value::Text(right)) if equality => Some(left.cmp(right)),
        (Value::Boolean(left), Value::Boolean(right)) if equality => Some(left.cmp(&right)),
        (Value::Long(left), Value::Long(right)) => Some(left.cmp(&right)),
        (left, right) => match (approximate(left), approximate(right)) {
            // Not a number is unequal to everything, itself too.
            (Some(left), Some(right)) => match left.partial_cmp(&right) {
                None => return Value::Boolean(comparison == Comparison::NotEqual),
                ordered => ordered,
            },
            _ => None,
        },
    };
    let Some(ordering) = ordering else { return Value::Boolean(false) };
    Value::Boolean(match comparison {
        Comparison::Equal => ordering == Ordering::Equal,
        Comparison::NotEqual => ordering != Ordering::Equal,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::LessOrEqual => ordering != Ordering::Greater,
        Comparison::Greater => ordering == Ordering::Greater,
        Comparison::GreaterOrEqual => ordering != Ordering::Less,
    })
}

/// Java's binary numeric promotion to double.
fn approximate(value: Value<'_>) -> Option<f64> {
    match value {
        #[expect(
            clippy::cast_precision_loss,
            reason = "Java promotes a long to a double like this"
        )]
        Value::Long(value) => Some(value as f64),
        Value::Double(value) => Some(value),
        Value::Null | Value::Boolean(_) | Value::Text(_) => None,
    }
}

fn calculate<'a>(calculation: Calculation, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    if let (Value::Long(left), Value::Long(right)) = (left, right) {
        return match calculation {
            Calculation::Add => Value::Long(left.wrapping_add(right)),
            Calculation::Subtract => Value::Long(left.wrapping_sub(right)),
            Calculation::Multiply => Value::Long(left.wrapping_mul(right)),
            Calculation::Divide if right == 0 => Value::Null,
            Calculation::Divide => Value::Long(left.wrapping_div(right)),
        };
    }
    let (Some(left), Some(right)) = (approximate(left), approximate(right)) else {
        return Value::Null;
    };
    Value::Double(match calculation {
        Calculation::Add => left + right,
        Calculation::Subtract => left - right,
        Calculation::Multiply => left * right,
        Calculation::Divide => left / right,
    })
}
