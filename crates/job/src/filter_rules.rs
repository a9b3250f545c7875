//! Converts filter rules between the form that is matched and the form that a selection carries.

use haul_store::{FilterRule, MergeFile, MergeFormat, PatternRule, RuleTraits, Sides};
use haul_wire::control as wire;

/// Converts for a selection.
pub fn to_wire(rule: &FilterRule) -> wire::FilterRule {
    let (include, pattern, traits, merge) = match rule {
        FilterRule::Pattern(rule) => (rule.include, &rule.pattern, rule.traits, None),
        FilterRule::PerDirectory(file) => (false, &file.name, file.traits, Some(merge(file))),
    };
    wire::FilterRule {
        include,
        pattern: pattern.clone(),
        sides: match traits.sides {
            Sides::Both => wire::Sides::Both,
            Sides::Sender => wire::Sides::Sender,
            Sides::Receiver => wire::Sides::Receiver,
        },
        negated: traits.negated,
        perishable: traits.perishable,
        merge,
    }
}

fn merge(file: &MergeFile) -> wire::Merge {
    wire::Merge {
        inherits: file.inherits,
        excludes_itself: file.excludes_itself,
        words: file.words,
        format: match file.format {
            MergeFormat::Rules => wire::MergeFormat::Rules,
            MergeFormat::Patterns { include: true } => wire::MergeFormat::Includes,
            MergeFormat::Patterns { include: false } => wire::MergeFormat::Excludes,
            MergeFormat::Cvs => wire::MergeFormat::Cvs,
        },
    }
}

/// Converts for a match.
pub fn of_wire(rule: &wire::FilterRule) -> FilterRule {
    let traits = RuleTraits {
        sides: match rule.sides {
            wire::Sides::Both => Sides::Both,
            wire::Sides::Sender => Sides::Sender,
            wire::Sides::Receiver => Sides::Receiver,
        },
        negated: rule.negated,
        perishable: rule.perishable,
    };
    let Some(merge) = rule.merge else {
        return FilterRule::Pattern(PatternRule { include: rule.include, pattern: rule.pattern.clone(), traits });
    };
    FilterRule::PerDirectory(MergeFile {
        name: rule.pattern.clone(),
        inherits: merge.inherits,
        excludes_itself: merge.excludes_itself,
        words: merge.words,
        format: match merge.format {
            wire::MergeFormat::Rules => MergeFormat::Rules,
            wire::MergeFormat::Includes => MergeFormat::Patterns { include: true },
            wire::MergeFormat::Excludes => MergeFormat::Patterns { include: false },
            wire::MergeFormat::Cvs => MergeFormat::Cvs,
        },
        traits,
    })
}
