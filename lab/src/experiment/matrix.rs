//! Makes a sweep's points: all combinations of values.

use std::collections::BTreeMap;
use std::fmt;

use super::error::{ExperimentError, wrong};
use super::scalar::Scalar;
use super::template::Scope;
use crate::limits;

/// One value for each swept parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Point {
    /// Values by parameter, as in the experiment.
    pub values: BTreeMap<String, String>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.values.is_empty() {
            return f.write_str("the only point");
        }
        for (at, (name, value)) in self.values.iter().enumerate() {
            write!(f, "{}{name} {value}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Point {
    pub(super) fn matches(&self, values: &BTreeMap<String, Scalar>) -> bool {
        values.iter().all(|(name, value)| self.values.get(name) == Some(&value.0))
    }

    pub(super) fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        for (name, value) in &self.values {
            scope.set(name, value);
        }
        scope
    }
}

/// All points, at most [`limits::MAX_POINTS`]; the alphabet's last parameter changes fastest.
pub fn points(sweep: &BTreeMap<String, Vec<Scalar>>) -> Vec<Point> {
    let mut points = vec![Point::default()];
    for (name, values) in sweep {
        let mut wider = Vec::with_capacity(points.len() * values.len());
        for point in &points {
            for value in values {
                let mut point = point.clone();
                point.values.insert(name.clone(), value.0.clone());
                wider.push(point);
            }
        }
        points = wider;
    }
    points
}

/// Fails for an empty list, or a too large matrix.
pub(super) fn check(what: &str, sweep: &BTreeMap<String, Vec<Scalar>>) -> Result<(), ExperimentError> {
    let mut count = 1usize;
    for (name, values) in sweep {
        if values.is_empty() {
            return Err(wrong(what, format!("the sweep over {name} has no values")));
        }
        if values.iter().enumerate().any(|(at, value)| values[..at].contains(value)) {
            return Err(wrong(what, format!("the sweep over {name} has a value twice")));
        }
        count = count.saturating_mul(values.len());
    }
    match count <= limits::MAX_POINTS {
        true => Ok(()),
        false => Err(wrong(what, format!("the sweep has {count} points; at most {} make sense", limits::MAX_POINTS))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[&str]) -> Vec<Scalar> {
        values.iter().map(|value| Scalar((*value).to_owned())).collect()
    }

    #[test]
    fn the_matrix_has_every_combination_once() {
        let sweep = BTreeMap::from([("loss".into(), list(&["0", "1e-4"])), ("cc".into(), list(&["cubic", "bbr"]))]);
        let names: Vec<String> = points(&sweep).iter().map(Point::to_string).collect();
        assert_eq!(names, ["cc cubic, loss 0", "cc cubic, loss 1e-4", "cc bbr, loss 0", "cc bbr, loss 1e-4"]);
        assert_eq!(points(&BTreeMap::new()), [Point::default()]);
    }

    #[test]
    fn an_explosion_is_refused_before_it_happens() {
        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let many = list(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let sweep = BTreeMap::from([("a".into(), many.clone()), ("b".into(), many.clone()), ("c".into(), many)]);
        let error = check("x", &sweep).unwrap_err().to_string();
        assert_eq!(error, "x: the sweep has 1000000 points; at most 1000 make sense");
    }
}
