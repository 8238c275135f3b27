use super::*;

fn rates(warmup_ratio: f64, num_steps: usize, schedule: Schedule) -> Vec<f64> {
    let learning_rate = LearningRate::new(8.0, warmup_ratio, num_steps, schedule);
    (0..num_steps).map(|step| (learning_rate.at(step) * 1e6).round() / 1e6).collect()
}

#[test]
fn schedules_equal_those_of_transformers() {
    // get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup and get_constant_schedule_with_warmup of transformers 5.23
    // with num_warmup_steps = 2, num_training_steps = 6 and a peak of 8.
    assert_eq!(rates(0.3, 6, Schedule::Cosine), [0.0, 4.0, 8.0, 6.828427, 4.0, 1.171573]);
    assert_eq!(rates(0.3, 6, Schedule::Linear), [0.0, 4.0, 8.0, 6.0, 4.0, 2.0]);
    assert_eq!(rates(0.3, 6, Schedule::Constant), [0.0, 4.0, 8.0, 8.0, 8.0, 8.0]);
}

#[test]
fn without_a_warm_up_the_first_step_has_the_peak() {
    assert_eq!(rates(0.0, 2, Schedule::Cosine), [8.0, 4.0]);
}

#[test]
fn the_last_step_never_warms_up() {
    // Here transformers would end at 4; its runs of one step have the rate 0.
    assert_eq!(rates(1.0, 2, Schedule::Cosine), [0.0, 8.0]);
    assert_eq!(rates(0.1, 1, Schedule::Cosine), [8.0]);
}
