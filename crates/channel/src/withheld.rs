//! Why entries were not deleted, in a sentence.

use haul_wire::control::Withheld;

/// Makes the sentence.
pub fn text(entries: u64, why: Withheld) -> String {
    let stays = if entries == 1 { "1 entry stays".to_owned() } else { format!("{entries} entries stay") };
    match why {
        Withheld::SourceIsEmpty => format!(
            "nothing is deleted here, {stays}: the source has nothing to copy, as a disk that is not mounted; --force \
             deletes all the same"
        ),
        Withheld::MoreThanHalf { of } => format!(
            "nothing is deleted here, {stays}: the source lacks more than half of the {of} entries that stood here; is it the \
             right one? --force deletes all the same"
        ),
    }
}
