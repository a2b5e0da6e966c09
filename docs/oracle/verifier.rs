// A right verifier for exact/oracle.py. With any flag it is wrong: it does not subtract the draft.
//
//     rustc -O verifier.rs && python oracle.py --command ./verifier
use std::io::{stdin, stdout, Write};

fn main() {
    let is_wrong = std::env::args().len() > 1;
    for line in stdin().lines() {
        let line = line.unwrap();
        let mut numbers = line.split(' ').map(|word| word.parse::<f64>().unwrap());
        let mut take = |n: usize| numbers.by_ref().take(n).collect::<Vec<f64>>();

        let size = take(2);
        let (k, v) = (size[0] as usize, size[1] as usize);
        let mut guesses = take(k);
        let p_draft = take(k * v); // row t begins at t * v
        let p_target = take((k + 1) * v);
        let uniforms = take(k + 1);
        guesses.push(-1.0); // no guess at position k; a missing guess is -1 too

        let place = |t: usize| t * v + guesses[t] as usize;
        let is_accepted = |t: &usize| uniforms[*t] * p_draft[place(*t)] < p_target[place(*t)];
        let is_guess = |t: &usize| guesses[*t] >= 0.0;
        let n = (0..k).take_while(is_guess).take_while(is_accepted).count();

        // of the residual: the part of p_target above p_draft
        let mut weights = vec![];
        for i in n * v..(n + 1) * v {
            let q = if is_guess(&n) && !is_wrong { p_draft[i] } else { 0.0 };
            weights.push((p_target[i] - q).max(0.0));
        }
        let goal = uniforms[k] * weights.iter().sum::<f64>();
        let (mut token, mut before) = (0, 0.0); // before: the weight of all tokens before i
        for i in 0..v {
            if weights[i] > 0.0 && before <= goal {
                token = i;
            }
            before += weights[i];
        }

        for t in 0..=k {
            let written = if t < n { guesses[t] as i64 } else if t == n { token as i64 } else { -1 };
            print!("{written} ");
        }
        println!();
        stdout().flush().unwrap(); // an answer in a buffer is no answer
    }
}
