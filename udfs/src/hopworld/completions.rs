//! The text of completions. Each opens with one space, as it follows the prompt's last colon.
//!
//! The first word tells the decision: "Now" goes on, "But" searches again, "This" answers. So the probability of a decision is that
//! of one token, whatever wording follows, and a preference between two decisions has one place to act on.

use super::random::Random;
use super::relations::Relation;

/// Why a trajectory searches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Motive {
    /// The first step.
    Start,
    /// The next hop of a chain.
    NextHop,
    /// The second entity of a comparison.
    OtherEntity,
    /// The same once more, though its evidence is there.
    CheckAgain,
    /// Something of the last entity that nobody asked for.
    Curiosity,
    /// The last search found nothing.
    Retry,
}

impl Motive {
    fn openings(self) -> &'static [&'static str] {
        match self {
            Motive::Start => &["I need the {r}.", "First I need the {r}.", "Let me find the {r}.", "First find the {r}."],
            Motive::NextHop => &["Now I need the {r}.", "Now find the {r}.", "Now I look for the {r}.", "Now comes the {r}."],
            Motive::OtherEntity => &["Now I need the other {r}.", "Now find the other {r}.", "Now I look for the other {r}."],
            Motive::CheckAgain => {
                &["But let me check again.", "But I want to be sure.", "But one more look is good.", "But I will look again."]
            }
            Motive::Curiosity => &["But I also want the {r}.", "But the {r} may help too.", "But let me see the {r}."],
            Motive::Retry => &["Nothing was found, I ask again.", "Nothing fits, I try other words.", "Nothing helps, I ask again."],
        }
    }
}

const ANSWER_OPENINGS: [&str; 4] = ["This is enough.", "This gives the answer.", "This settles it.", "This is what I need."];
const COMPARISON_OPENINGS: [&str; 3] =
    ["This puts {a} before {b}.", "This shows that {a} is before {b}.", "This means {a} comes before {b}."];

/// " Now I need the birthplace. So the next query is <query>birthplace of Tessa Orlin</query>"
pub(super) fn ask(motive: Motive, relation: Relation, query: &str, random: &mut Random) -> String {
    let opening = random.pick(motive.openings()).replace("{r}", relation.phrase());
    format!(" {opening} So the next query is <query>{query}</query>")
}

/// " <evidence>Velmora was directed by Tessa Orlin.</evidence>", or None in its place.
pub(super) fn extract(sentence: Option<&str>) -> String {
    format!(" <evidence>{}</evidence>", sentence.unwrap_or("None"))
}

/// " This is enough. So the answer is <answer>Tessa Orlin</answer>"
pub(super) fn answer(answer: &str, random: &mut Random) -> String {
    format!(" {}{}", random.pick(&ANSWER_OPENINGS), forced_answer(answer))
}

/// " This puts 1931 before 1954. So the answer is ...": copying the earlier year first is the comparison, the name follows from it.
pub(super) fn compared_answer(answer: &str, earlier: &str, later: &str, random: &mut Random) -> String {
    let opening = random.pick(&COMPARISON_OPENINGS).replace("{a}", earlier).replace("{b}", later);
    format!(" {opening}{}", forced_answer(answer))
}

/// " So the answer is <answer>Tessa Orlin</answer>", without a reason: all that the state `answer_generation` asks for.
pub(super) fn forced_answer(answer: &str) -> String {
    format!(" So the answer is <answer>{answer}</answer>")
}
