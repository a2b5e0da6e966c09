(* Block verification writes the target's text, proved so that a machine checks it.

Sun et al. (2024) Alg. 2, "Block Verification Accelerates Speculative Decoding"; the code is
variants/block.py. Read lossless.v first. docs/proof.md says how to run both.

    here          variants/block.py
    share         share[t]: how much of the block's probability is left after t guesses
    next_share    one step of `shares`
    p_accept      the probability of accepting t guesses, if not more are accepted
    t             how many guesses were made before; t = 0 is the start, which is never tested
    visit         the loop over n, as a function that calls itself on the guesses after this one:
                  None if no test after it succeeded, so that the next smaller n is tested
    s, c          a share; any number that None is worth

The largest n that passes is the first one from the top: so a guess is looked at only after all
guesses behind it. The theorem rests on one equation, `block_step`: it is step 4 for a target
that has only the share s of its probability left, and it holds for every c. *)

From Coq Require Import Arith Field Lia List Lqa QArith Qcanon.
Require Import lossless.
Import ListNotations.
Open Scope Qc_scope.
Open Scope list_scope.

Section Block.
Variable V : nat.

(* ---- 1. The algorithm *)

Definition times (share : Qc) (p : row) : row := fun v => share * p v.

Definition next_share (share : Qc) (p d : row) (token : token) : Qc :=
  min (share * p token / d token) 1.

Definition p_accept (share : Qc) (p d : row) : Qc :=
  let surplus := sum V (surplus (times share p) d) in
  let missing := surplus + 1 - share in
  if Qclt_le_dec 0 missing then min (surplus / missing) 1 else 1.

(* `n > 0 and not accept(prob)` *)
Definition accept_after (t : nat) (prob : Qc) : D bool :=
  match t with O => ret true | _ => accept prob end.

Fixpoint visit (t : nat) (share : Qc) (guesses : list token) (p_draft p_target : list row)
    : D (option text) :=
  match guesses, p_draft, p_target with
  | token :: guesses, d :: p_draft, p :: p_target =>
      longer <- visit (S t) (next_share share p d token) guesses p_draft p_target;
      match longer with
      | Some ids => ret (Some (token :: ids))
      | None =>
          accepted <- accept_after t (p_accept share p d);
          if accepted : bool then
            token <- sample V (residual V (times share p) d);
            ret (Some [token])
          else ret None
      end
  | _, _, p_target =>  (* all guesses: t = k *)
      accepted <- accept_after t share;
      if accepted : bool then
        token <- sample V (last p_target (fun _ => 0));
        ret (Some [token])
      else ret None
  end.

Definition text_of (ids : option text) : text := match ids with Some ids => ids | None => [] end.

Definition block_verify (guesses : list token) (p_draft p_target : list row) : D text :=
  ids <- visit 0 1 guesses p_draft p_target;
  ret (text_of ids).

(* ---- 2. One guess, with a share *)

Section OneGuess.
Variables (p d : row) (s : Qc).
Hypotheses (Hp : positive V p) (Hsum : s * sum V p = s) (Hd : distribution V d) (Hs : 0 <= s <= 1).

Lemma times_positive : positive V (times s p).
Proof. intros v Hv. specialize (Hp v Hv). destruct Hs. unfold times. order. Qed.

Lemma next_share_between g : (g < V)%nat -> 0 <= next_share s p d g <= 1.
Proof.
  intros Hg. pose proof (positive_quotient _ _ (times_positive g Hg) (proj1 Hd g Hg)).
  unfold next_share. fold (times s p g). split; order.
Qed.

(* What the tests of longer blocks leave is what this position still needs, and 1 - s. *)
Lemma left_by_longer :
  1 - sum V (overlap (times s p) d) = sum V (surplus (times s p) d) + 1 - s.
Proof.
  rewrite (sum_ext _ (surplus _ _) (fun v => times s p v - overlap (times s p) d v))
    by (intros; now rewrite overlap_and_surplus).
  rewrite sum_minus. unfold times at 2. rewrite sum_times, Hsum. ring.
Qed.

(* So p_accept is what makes the two agree: this position gets what it still needs. *)
Lemma missing_times_p_accept :
  (1 - sum V (overlap (times s p) d)) * p_accept s p d = sum V (surplus (times s p) d).
Proof.
  rewrite left_by_longer. unfold p_accept. pose proof (surplus_positive V (times s p) d) as H0.
  set (mass := sum V (surplus _ d)) in *. clearbody mass. destruct Hs as [_ H1].
  assert (mass <= mass + 1 - s) as Hle by order.
  set (missing := mass + 1 - s) in *. clearbody missing.
  destruct (Qclt_le_dec 0 missing) as [H|H]; [|order].
  pose proof (times_quotient mass missing H) as E.
  set (h := mass / missing) in *. clearbody h. subst mass. order.
Qed.

(* A guess is accepted with its share; then `next` follows. Otherwise the test of this position
   succeeds with p_accept, and a replacement is drawn; otherwise c. The whole is the target's
   average with probability s, and c with probability 1 - s. *)
Lemma block_step next c :
  sum V (fun g => d g * (next_share s p d g * next g + (1 - next_share s p d g) *
    (p_accept s p d * sample V (residual V (times s p) d) next + (1 - p_accept s p d) * c)))
  = s * sample V p next + (1 - s) * c.
Proof.
  set (h := p_accept s p d). set (replaced := sample V (residual V (times s p) d) next).
  set (missing := 1 - sum V (overlap (times s p) d)).
  transitivity (sum V (fun g => overlap (times s p) d g * next g)
                + missing * (h * replaced + (1 - h) * c)).
  - assert (missing = sum V (fun g => d g - overlap (times s p) d g)) as ->
      by (unfold missing; now rewrite sum_minus, (proj2 Hd)).
    rewrite (Qcmult_comm (sum _ _)), <- sum_times, <- sum_plus. apply sum_ext. intros g Hg.
    rewrite <- guessed_and_accepted by (now apply times_positive || now apply Hd).
    change (next_share s p d g) with (ratio (times s p) d g). ring.
  - replace (missing * (h * replaced + (1 - h) * c))
      with (missing * h * replaced + (missing - missing * h) * c) by ring.
    unfold missing, h. rewrite missing_times_p_accept, left_by_longer.
    replace (_ + 1 - s - _) with (1 - s) by ring. rewrite Qcplus_assoc. f_equal.
    unfold replaced, sample. rewrite <- !sum_times, <- sum_plus. apply sum_ext. intros v Hv.
    rewrite Qcmult_assoc, mass_times_residual, <- overlap_and_surplus by easy. unfold times. ring.
Qed.
End OneGuess.

Lemma p_accept_1 p d : p_accept 1 p d = 1.
Proof.
  unfold p_accept. set (mass := sum V _). clearbody mass.
  replace (mass + 1 - 1) with mass by ring.
  destruct (Qclt_le_dec 0 mass) as [H|H]; [|easy].
  replace (mass / mass) with 1; [easy|]. field. intros E. rewrite E in H.
  now apply (Qclt_not_eq 0 0).
Qed.

Lemma p_accept_le_1 s p d : p_accept s p d <= 1.
Proof. unfold p_accept. destruct (Qclt_le_dec 0 _); order. Qed.

(* The start is never tested, and its share is 1: testing it would change nothing. *)
Lemma accepted_after t prob f : (t = O -> prob = 1) -> prob <= 1 ->
  accept_after t prob f = prob * f true + (1 - prob) * f false.
Proof.
  destruct t; intros H1 H; [rewrite H1 by easy|now apply accept_up_to_1].
  unfold accept_after, ret. ring.
Qed.

(* ---- 3. One round, then the target *)

(* `visit` returns a text of at least one token, or None if this is not the start. *)
Definition some_text (t : nat) (ids : option text) :=
  match ids with Some ids => ids <> [] | None => t <> O end.

Lemma always_accepted t prob p :
  always (some_text t) (accepted <- accept_after t prob;
                        if accepted : bool then token <- sample V p; ret (Some [token])
                        else ret None).
Proof.
  assert (always (some_text t) (token <- sample V p; ret (Some [token]))) as H.
  { eapply always_bind; [apply always_sample|]. intros. now apply always_ret. }
  destruct t; [easy|]. eapply always_bind; [apply always_accept|]. intros [] _; [easy|].
  now apply always_ret.
Qed.

Lemma always_visit guesses : forall t s p_draft p_target,
  always (some_text t) (visit t s guesses p_draft p_target).
Proof.
  induction guesses as [|g gs IH]; intros t s [|d ds] [|p ps]; try apply always_accepted.
  eapply always_bind; [apply IH|]. intros [ids|] _; [now apply always_ret|apply always_accepted].
Qed.

Variables draft target : model.
Hypothesis Hd : forall x, distribution V (draft x).
Hypothesis Hp : forall x, distribution V (target x).

(* The average of f if plain decoding follows the tokens ids, and c if there are none. *)
Definition then_plain x n (f : text -> Qc) (c : Qc) : option text -> Qc := fun ids =>
  match ids with
  | Some ids => plain V target (x ++ ids) (n - length ids) (fun rest => f (ids ++ rest))
  | None => c
  end.

(* c is general, because the guesses after a guess answer None when its own test is tried. *)
Lemma visit_round k : forall t n x s f c, 0 <= s <= 1 -> (t = O -> s = 1) -> (k < n)%nat ->
  guess V draft x k (fun '(guesses, p_draft) =>
    visit t s guesses p_draft (score target x guesses) (then_plain x n f c))
  = s * plain V target x n f + (1 - s) * c.
Proof.
  induction k as [|k IH]; intros t [|n] x s f c Hs Ht Hk; try lia.
  - cbn [guess]. unfold ret at 1. cbn [visit score last]. unfold bind at 1.
    rewrite accepted_after by easy. f_equal. f_equal.
    apply (one_token V (target x) target x n f).
  - assert (s * sum V (target x) = s) as Hsum by (rewrite (proj2 (Hp x)); ring).
    rewrite <- (block_step _ _ s (proj1 (Hp x)) Hsum (Hd x) Hs (go_on V target x n f) c
                : _ = s * plain V target x (S n) f + _).
    apply always_sample. intros g Hg.
    pose proof (next_share_between _ _ s (proj1 (Hp x)) (Hd x) Hs g Hg) as Hs'.
    unfold go_on at 1. rewrite <- (IH (S t) n (x ++ [g]) _ _ _ Hs') by lia.
    apply (average_guess V draft Hd). intros [gs ds] _. cbn. unfold bind, ret.
    apply always_visit. intros [ids|] _; unfold then_plain; [now rewrite <- app_assoc|].
    rewrite accepted_after by (apply p_accept_le_1 || (intros E; rewrite (Ht E); apply p_accept_1)).
    f_equal. f_equal. apply (one_token V _ target x n f).
Qed.
End Block.

Theorem block_is_lossless V draft target K x N stop :
  (forall x, distribution V (draft x)) -> (forall x, distribution V (target x)) ->
  generate x (speculative_step target K (guess V draft) (block_verify V)) N stop
  =D= autoregressive_sampling V x target N stop.
Proof.
  intros Hd Hp. apply exact_step_is_lossless; [easy|]. clear x N. intros x n Hn. split.
  - eapply always_bind; [apply (average_guess V draft Hd)|]. intros [gs ds] _.
    eapply always_bind; [apply always_visit|]. intros [ids|] H; [now apply always_ret|easy].
  - intros f. transitivity (1 * plain V target x n f + (1 - 1) * 0); [|ring].
    rewrite <- (visit_round V draft target Hd Hp (Nat.min (K x) (n - 1)) 0) by (easy || lia).
    apply (average_guess V draft Hd). intros [gs ds] _.
    unfold block_verify, bind, ret. apply always_visit. now intros [ids|] H.
Qed.
