(* Speculative sampling writes the target's text: Theorem 1, proved so that a machine checks it.

Chen et al. (2023) Theorem 1; Leviathan et al. (2023) Appendix A.1; docs/proof.md, step by step.
`coqc lossless.v` runs the checker (Coq, now called Rocq). It prints nothing if every proof is
right, and otherwise names the first line that does not follow. To read the file:

  - A definition is a program, written as in sampling.py and speculative.py. `f a` is f(a) and
    `fun v => e` is lambda v: e. A number is O or S k, which are 0 and k + 1. A list is [] or
    token :: rest, which are [] and [token, *rest]; `ids ++ rest` joins two lists.
  - A theorem is a sentence up to its full stop. The lines from `Proof.` to `Qed.` are
    instructions for the checker. A reader can skip them, because the checker has read them.

    here              speculative.py, sampling.py, docs/proof.md
    V                 the number of tokens; a token is one of 0 .. V - 1
    row, model        p_target[t] or p_draft[t]; a function from a text to its row
    p, d              the target's and the draft's row at one position: p(v), d(v)
    x, guesses, k, K, n_left, N, stop       as in speculative.py; K is any function of the text
    Qc                fractions: equality is exact, and everything computes
    D A               a distribution of outcomes in A; m is one of them
    f                 any function from outcomes to numbers

    part 1  what a distribution is         part 5  one guess: steps 1 to 4
    part 2  the algorithm                  part 6  one round, then the target: step 5
    part 3  sums and inequalities          part 7  a text: steps 6 and 7, Theorem 1
    part 4  what every program satisfies   part 8  Theorem 2; the ceiling; match; one-hot rows *)

From Coq Require Import Arith Bool Field Lia List Lqa QArith Qcanon.
Import ListNotations.
Open Scope Qc_scope.
Open Scope list_scope.

Notation token := nat.
Notation text := (list token).
Definition row := token -> Qc.
Definition model := text -> row.

(* ---- 1. A distribution is what a function gets on average

`D A`, a distribution over A, is the function that takes any f : A -> Qc to the average of f. The
probability of an outcome is the average of the function that is 1 there and 0 elsewhere. A fair
coin, for example, is `fun f => 1/2 * f true + 1/2 * f false`.

The reason is that averages follow the program: the average after two steps is the average, over
the first step, of the average after the second (`bind`). So a random program is an ordinary
function that is written line by line as in Python, and two programs have the same distribution
if every f has the same average under both. No measures and no lists of outcomes are needed. *)

Definition D (A : Type) := (A -> Qc) -> Qc.

Definition ret {A} (a : A) : D A := fun f => f a.  (* return a, with certainty *)
Definition bind {A B} (m : D A) (next : A -> D B) : D B := fun f => m (fun a => next a f).

(* `x <- m; rest` draws x from m and continues with the rest, as `x = m` does in Python. *)
Notation "x <- m ; rest" := (bind m (fun x => rest))
  (at level 61, m at next level, right associativity).
Notation "' names <- m ; rest" := (bind m (fun x => match x with names => rest end))
  (at level 61, names strict pattern, m at next level, right associativity).

(* Two programs have the same distribution. *)
Notation "m1 =D= m2" := (forall f, m1 f = m2 f) (at level 70).

Definition probability (event : D bool) : Qc := event (fun b => if b then 1 else 0).

(* ---- 2. The algorithm *)

Definition min (a b : Qc) := if Qclt_le_dec a b then a else b.
Definition max (a b : Qc) := if Qclt_le_dec a b then b else a.

(* For the proofs: `order` proves inequalities of fractions, and equations with min and max. *)
Lemma this_plus a b : (this (a + b) == this a + this b)%Q. Proof. apply Qred_correct. Qed.
Lemma this_mult a b : (this (a * b) == this a * this b)%Q. Proof. apply Qred_correct. Qed.
Lemma this_opp a : (this (- a) == - this a)%Q. Proof. apply Qred_correct. Qed.
Ltac order := intros; unfold min, max, Qcminus in *;
  repeat match goal with |- context [Qclt_le_dec ?a ?b] => destruct (Qclt_le_dec a b) end;
  try apply Qc_is_canon; unfold Qcle, Qclt in *;
  rewrite ?this_plus, ?this_mult, ?this_opp in *;
  change (this 0) with 0%Q in *; change (this 1) with 1%Q in *;
  solve [lra | nra].

Fixpoint sum (n : nat) (f : token -> Qc) : Qc :=  (* f 0 + .. + f (n - 1) *)
  match n with O => 0 | S v => sum v f + f v end.

Section Vocabulary.
Variable V : nat.  (* whatever follows holds for every V *)

(* What the proofs assume of a row, and check_rows checks: no negative number, and sum 1. *)
Definition positive (p : row) := forall v, (v < V)%nat -> 0 <= p v.
Definition distribution (p : row) := positive p /\ sum V p = 1.

(* sampling.py. In fractions, a / 0 is 0; the proofs show that no such quotient matters. *)
Definition sample (p : row) : D token := fun f => sum V (fun v => p v * f v).
Definition accept (prob : Qc) : D bool :=
  let prob := min prob 1 in  (* u < prob is certain if prob is above 1 *)
  fun f => prob * f true + (1 - prob) * f false.

Definition surplus (p_target p_draft : row) : row := fun v => max (p_target v - p_draft v) 0.
Definition residual (p_target p_draft : row) : row :=
  let mass := sum V (surplus p_target p_draft) in
  if Qclt_le_dec 0 mass then fun v => surplus p_target p_draft v / mass else p_target.

(* speculative.py. A loop is a function that calls itself on the rest. *)
Fixpoint guess (draft : model) (x : text) (k : nat) : D (list token * list row) :=
  match k with
  | O => ret ([], [])
  | S k =>
      let row := draft x in
      token <- sample row;
      '(guesses, p_draft) <- guess draft (x ++ [token]) k;
      ret (token :: guesses, row :: p_draft)
  end.

(* `target(x + guesses, k + 1)`: row t follows x and the first t guesses. *)
Fixpoint score (target : model) (x : text) (guesses : list token) : list row :=
  target x :: match guesses with
              | [] => []
              | token :: guesses => score target (x ++ [token]) guesses
              end.

Fixpoint verify (guesses : list token) (p_draft p_target : list row) : D text :=
  match guesses, p_draft, p_target with
  | token :: guesses, d :: p_draft, p :: p_target =>
      accepted <- accept (min (p token / d token) 1);                   (* [3] *)
      if accepted : bool then
        ids <- verify guesses p_draft p_target;
        ret (token :: ids)
      else
        token <- sample (residual p d);                                 (* [4] *)
        ret [token]
  | _, _, p_target =>  (* no guess is left *)
      token <- sample (last p_target (fun _ => 0));                     (* [5] *)
      ret [token]
  end.

Definition speculative_step (target : model) (K : text -> nat)
    (make_guesses : text -> nat -> D (list token * list row))
    (test : list token -> list row -> list row -> D text) (x : text) (n_left : nat) : D text :=
  '(guesses, p_draft) <- make_guesses x (Nat.min (K x) (n_left - 1));   (* [1] *)
  let p_target := score target x guesses in                             (* [2] *)
  test guesses p_draft p_target.                                        (* [3] [4] [5] *)

Definition autoregressive_step (target : model) (x : text) (n_left : nat) : D text :=
  token <- sample (target x);
  ret [token].

Fixpoint up_to_stop (ids : text) (stop : token -> bool) : text :=
  match ids with
  | [] => []
  | token :: ids => if stop token then [token] else token :: up_to_stop ids stop
  end.

(* The `while` of `generate`, for so many rounds at most; it returns the new tokens. *)
Fixpoint loop (rounds : nat) (x : text) (step : text -> nat -> D text) (N : nat)
    (stop : token -> bool) : D text :=
  match rounds, N with
  | S rounds, S _ =>
      ids <- step x N;
      let ids := up_to_stop ids stop in
      if stop (last ids O) then ret ids else
      rest <- loop rounds (x ++ ids) step (N - length ids)%nat stop;
      ret (ids ++ rest)
  | _, _ => ret []
  end.

(* N rounds are enough, because each of them writes a token. *)
Definition generate x step N stop : D text := loop N x step N stop.

Definition autoregressive_sampling x target N stop : D text :=
  generate x (autoregressive_step target) N stop.

Definition speculative_sampling x draft target N K stop : D text :=
  generate x (speculative_step target K (guess draft) verify) N stop.

(* Plain decoding without a stop token, N draws from the target: Chen et al. (2023) Alg. 1. *)
Fixpoint plain (target : model) (x : text) (N : nat) : D text :=
  match N with
  | O => ret []
  | S N =>
      token <- sample (target x);
      rest <- plain target (x ++ [token]) N;
      ret (token :: rest)
  end.

(* ---- 3. Sums and inequalities *)

Lemma times_quotient a b : 0 < b -> b * (a / b) = a.
Proof. intros H. field. intros E. rewrite E in H. now apply (Qclt_not_eq 0 0). Qed.

Lemma positive_quotient a b : 0 <= a -> 0 <= b -> 0 <= a / b.
Proof.
  intros Ha Hb. destruct (Qcle_lt_or_eq _ _ Hb) as [H|<-].
  - pose proof (times_quotient a b H) as E. destruct (Qclt_le_dec (a / b) 0) as [Hq|]; [|easy].
    set (q := a / b) in *. clearbody q. rewrite <- E in Ha. order.
  - unfold Qcdiv. replace (/ 0) with 0 by easy. order.
Qed.

Lemma sum_ext n f g : (forall v, (v < n)%nat -> f v = g v) -> sum n f = sum n g.
Proof. induction n as [|n IH]; intros H; cbn; [|rewrite IH, H]; auto with arith. Qed.

Lemma sum_plus n f g : sum n (fun v => f v + g v) = sum n f + sum n g.
Proof. induction n as [|n IH]; cbn; [|rewrite IH]; ring. Qed.

Lemma sum_times n c f : sum n (fun v => c * f v) = c * sum n f.
Proof. induction n as [|n IH]; cbn; [|rewrite IH]; ring. Qed.

Lemma sum_minus n f g : sum n (fun v => f v - g v) = sum n f - sum n g.
Proof. induction n as [|n IH]; cbn; [|rewrite IH]; ring. Qed.

Lemma sum_le n f g : (forall v, (v < n)%nat -> f v <= g v) -> sum n f <= sum n g.
Proof. induction n as [|n IH]; cbn; intros H; [easy|]. apply Qcplus_le_compat; auto with arith. Qed.

Lemma sum_positive n f : (forall v, (v < n)%nat -> 0 <= f v) -> 0 <= sum n f.
Proof.
  intros H. replace 0 with (sum n (fun _ => 0 * 0)) by (rewrite sum_times; ring).
  apply sum_le. intros v Hv. rewrite Qcmult_0_l. auto.
Qed.

Lemma sum_at n v f : (v < n)%nat -> sum n (fun u => f u * (if u =? v then 1 else 0)) = f v.
Proof.
  induction n as [|n IH]; cbn; intros H; [lia|].
  destruct (Nat.eqb_spec n v) as [->|Hnv]; [|rewrite IH by lia; ring].
  rewrite (sum_ext _ _ (fun u => 0 * f u)), sum_times; [ring|].
  intros u Hu. destruct (Nat.eqb_spec u v); [lia|ring].
Qed.

Lemma term_le n f v : (forall u, (u < n)%nat -> 0 <= f u) -> (v < n)%nat -> f v <= sum n f.
Proof.
  intros H Hv. rewrite <- (sum_at n v f Hv). apply sum_le. intros u Hu. specialize (H u Hu).
  destruct (u =? v); order.
Qed.

(* ---- 4. What every program satisfies *)

(* Every outcome of m has the property P: the average needs f at such outcomes only. *)
Definition always {A} (P : A -> Prop) (m : D A) :=
  forall f g, (forall a, P a -> f a = g a) -> m f = m g.

(* m is an average: it respects a factor and a constant (probabilities that sum to 1). *)
Definition average {A} (m : D A) :=
  always (fun _ => True) m /\ forall a c f, m (fun x => a * f x + c) = a * m f + c.

Lemma always_ret {A} (P : A -> Prop) a : P a -> always P (ret a).
Proof. intros Ha f g H. now apply H. Qed.

Lemma always_bind {A B} (P : A -> Prop) (Q : B -> Prop) m next :
  always P m -> (forall a, P a -> always Q (next a)) -> always Q (bind m next).
Proof. intros Hm Hn f g H. apply Hm. intros a Ha. now apply (Hn a Ha). Qed.

Lemma always_sample p : always (fun v => (v < V)%nat) (sample p).
Proof. intros f g H. apply sum_ext. intros v Hv. now rewrite H. Qed.

Lemma always_accept prob : always (fun _ => True) (accept prob).
Proof. intros f g H. unfold accept. now rewrite !H. Qed.

Lemma accept_up_to_1 prob f : prob <= 1 ->
  accept prob f = prob * f true + (1 - prob) * f false.
Proof. intros H. unfold accept. replace (min prob 1) with prob by order. easy. Qed.

Lemma average_ret {A} (a : A) : average (ret a).
Proof. split; [now apply always_ret|easy]. Qed.

Lemma average_bind {A B} (m : D A) (next : A -> D B) :
  average m -> (forall a, average (next a)) -> average (bind m next).
Proof.
  intros [Am Lm] Hn. split.
  - eapply always_bind; [exact Am|]. intros a _. apply Hn.
  - intros a c f. unfold bind. rewrite <- Lm. apply Am. intros x _. apply Hn.
Qed.

Lemma average_sample p : distribution p -> average (sample p).
Proof.
  intros [_ Hp]. split; [intros f g H; apply sum_ext; intros; now rewrite H|].
  intros a c f. transitivity (sum V (fun v => a * (p v * f v) + c * p v)).
  - apply sum_ext. intros. ring.
  - rewrite sum_plus, !sum_times, Hp. unfold sample. ring.
Qed.

Lemma average_constant {A} (m : D A) f c : average m -> (forall a, f a = c) -> m f = c.
Proof.
  intros [Am Lm] H. transitivity (m (fun a => 0 * f a + c)).
  - apply Am. intros a _. rewrite H. ring.
  - rewrite (Lm 0 c f). ring.
Qed.

Lemma average_guess draft : (forall x, distribution (draft x)) ->
  forall k x, average (guess draft x k).
Proof.
  intros Hd. induction k as [|k IH]; intros x; [apply average_ret|].
  apply average_bind; [now apply average_sample|]. intros g.
  apply average_bind; [apply IH|]. intros [gs ds]. apply average_ret.
Qed.

Lemma average_plain target : (forall x, distribution (target x)) ->
  forall n x, average (plain target x n).
Proof.
  intros Hp. induction n as [|n IH]; intros x; [apply average_ret|].
  apply average_bind; [now apply average_sample|]. intros v.
  apply average_bind; [apply IH|]. intros rest. apply average_ret.
Qed.

Definition nonempty (ids : text) := ids <> [].

Lemma always_one_token p : always nonempty (token <- sample p; ret [token]).
Proof. eapply always_bind; [apply always_sample|]. intros. now apply always_ret. Qed.

Lemma always_longer {A} (P : A -> Prop) (m : D A) (ids : A -> text) token :
  always P m -> always nonempty (a <- m; ret (token :: ids a)).
Proof. intros H. eapply always_bind; [apply H|]. intros. now apply always_ret. Qed.

(* `verify` writes at least one token. *)
Lemma always_verify guesses :
  forall p_draft p_target, always nonempty (verify guesses p_draft p_target).
Proof.
  induction guesses as [|g gs IH]; intros [|d ds] [|p ps]; try apply always_one_token.
  eapply always_bind; [apply always_accept|]. intros [] _; [|apply always_one_token].
  now apply (always_longer nonempty _ (fun ids => ids)).
Qed.

(* ---- 5. One guess *)

Definition ratio (p d : row) v := min (p v / d v) 1.
Definition overlap (p d : row) v := min (d v) (p v).

Lemma guessed_and_accepted p d v : 0 <= p v -> 0 <= d v -> d v * ratio p d v = overlap p d v.
Proof.
  intros Hp Hd. unfold ratio, overlap. destruct (Qcle_lt_or_eq _ _ Hd) as [H|<-]; [|order].
  pose proof (times_quotient (p v) (d v) H) as E. set (q := p v / d v) in *. clearbody q.
  rewrite <- E. order.
Qed.

Lemma accept_ratio p d v f :
  accept (min (p v / d v) 1) f = ratio p d v * f true + (1 - ratio p d v) * f false.
Proof. apply accept_up_to_1. unfold ratio. order. Qed.

Lemma overlap_and_surplus p d v : p v - overlap p d v = surplus p d v.
Proof. unfold overlap, surplus. order. Qed.

Lemma surplus_positive p d : 0 <= sum V (surplus p d).
Proof. apply sum_positive. unfold surplus. order. Qed.

(* No division is left: the residual times its mass is the surplus, also if there is none. *)
Lemma mass_times_residual p d v : (v < V)%nat ->
  sum V (surplus p d) * residual p d v = surplus p d v.
Proof.
  intros Hv. unfold residual. destruct (Qclt_le_dec 0 _) as [H|H]; [now apply times_quotient|].
  assert (0 <= surplus p d v <= sum V (surplus p d)) as [H1 H2].
  { split; [|apply term_le; [|easy]]; unfold surplus; order. }
  set (mass := sum V _) in *. set (w := surplus p d v) in *. clearbody mass w.
  assert (mass = 0) as -> by order. order.
Qed.

Section OneGuess.
Variables p d : row.
Hypotheses (Hp : distribution p) (Hd : distribution d).

(* The guess is v and is accepted with probability min(d(v), p(v)). *)
Theorem step_1 v : (v < V)%nat ->
  probability (g <- sample d; accepted <- accept (min (p g / d g) 1);
               ret (accepted && (g =? v)))
  = min (d v) (p v).
Proof.
  intros Hv. change (min (d v) (p v)) with (overlap p d v).
  rewrite <- guessed_and_accepted by (now apply Hp || now apply Hd).
  rewrite <- (sum_at V v (fun g => d g * ratio p d g) Hv). apply sum_ext. intros g _.
  unfold bind. rewrite accept_ratio. unfold ret. cbn. ring.
Qed.

(* What the draft gives too much of is as much as what it gives too little of. *)
Lemma rejected_mass : sum V (fun g => d g - overlap p d g) = sum V (surplus p d).
Proof.
  rewrite sum_minus, (proj2 Hd), <- (proj2 Hp), <- sum_minus. apply sum_ext. intros.
  apply overlap_and_surplus.
Qed.

(* The guess is rejected with probability R. *)
Theorem step_2 :
  let R := 1 - sum V (fun v => min (d v) (p v)) in
  probability (g <- sample d; accepted <- accept (min (p g / d g) 1); ret (negb accepted)) = R
  /\ R = sum V (fun v => max (p v - d v) 0).
Proof.
  intros R. assert (R = sum V (fun g => d g - overlap p d g)) as E.
  { unfold R. now rewrite sum_minus, (proj2 Hd). }
  split; rewrite E; [|apply rejected_mass]. apply sum_ext. intros g Hg.
  rewrite <- guessed_and_accepted by (now apply Hp || now apply Hd).
  unfold bind. rewrite accept_ratio. unfold ret. cbn. ring.
Qed.

(* The guess is rejected and replaced by v with probability max(p(v) - d(v), 0). *)
Theorem step_3 v : (v < V)%nat ->
  probability (g <- sample d; accepted <- accept (min (p g / d g) 1);
               if accepted : bool then ret false else
               token <- sample (residual p d); ret (token =? v))
  = max (p v - d v) 0.
Proof.
  intros Hv. change (max (p v - d v) 0) with (surplus p d v).
  rewrite <- mass_times_residual, <- rejected_mass, Qcmult_comm, <- sum_times by easy.
  apply sum_ext. intros g Hg.
  rewrite <- guessed_and_accepted by (now apply Hp || now apply Hd).
  rewrite <- (sum_at V v (residual p d) Hv). unfold bind. rewrite accept_ratio.
  unfold ret, sample. ring.
Qed.

(* The first token has the target's distribution. *)
Theorem step_4 :
  (g <- sample d;
   accepted <- accept (min (p g / d g) 1);
   if accepted : bool then ret g else sample (residual p d))
  =D= sample p.
Proof.
  intros f. set (replaced := sample (residual p d) f).
  transitivity (sum V (fun g => overlap p d g * f g) + sum V (surplus p d) * replaced).
  - rewrite <- rejected_mass, Qcmult_comm, <- sum_times, <- sum_plus. apply sum_ext. intros g Hg.
    rewrite <- guessed_and_accepted by (now apply Hp || now apply Hd).
    unfold bind. rewrite accept_ratio. unfold ret. fold replaced. ring.
  - unfold replaced, sample. rewrite <- sum_times, <- sum_plus. apply sum_ext. intros v Hv.
    rewrite Qcmult_assoc, mass_times_residual, <- overlap_and_surplus by easy. ring.
Qed.

(* Step 4 if `next` follows the first token. *)
Lemma tested_guess next :
  sample d (fun g => ratio p d g * next g + (1 - ratio p d g) * sample (residual p d) next)
  = sample p next.
Proof.
  rewrite <- step_4. apply sum_ext. intros g _. f_equal. symmetry. apply accept_ratio.
Qed.
End OneGuess.

(* ---- 6. One round, then the target *)

(* The average of f if the next token is v, and the target writes n tokens after it. *)
Definition go_on target x n (f : text -> Qc) : token -> Qc :=
  fun v => plain target (x ++ [v]) n (fun rest => f (v :: rest)).

Lemma one_token p target x n f :
  (ids <- (token <- sample p; ret [token]);
   rest <- plain target (x ++ ids) (S n - length ids); ret (ids ++ rest)) f
  = sample p (go_on target x n f).
Proof.
  apply sum_ext. intros v _. unfold bind, ret, go_on. cbn [length app].
  now replace (S n - 1)%nat with n by lia.
Qed.

Section OneRound.
Variables draft target : model.
Hypothesis Hd : forall x, distribution (draft x).
Hypothesis Hp : forall x, distribution (target x).

(* `verify` tests the first of its guesses, and the others only after it. *)
Lemma first_guess d g gs ds x n f :
  (ids <- verify (g :: gs) (d :: ds) (score target x (g :: gs));
   rest <- plain target (x ++ ids) (S n - length ids); ret (ids ++ rest)) f
  = ratio (target x) d g *
      (ids <- verify gs ds (score target (x ++ [g]) gs);
       rest <- plain target ((x ++ [g]) ++ ids) (n - length ids); ret (ids ++ rest))
      (fun rest => f (g :: rest))
    + (1 - ratio (target x) d g) * sample (residual (target x) d) (go_on target x n f).
Proof.
  unfold bind at 1. cbn [verify score]. unfold bind at 1. rewrite accept_ratio. f_equal; f_equal.
  - apply always_verify. intros ids _. unfold bind, ret. now rewrite <- app_assoc.
  - apply one_token.
Qed.

(* The claim: one round of k guesses, and then plain decoding, is plain decoding. *)
Theorem step_5 k : forall n z, (k < n)%nat ->
  ('(guesses, p_draft) <- guess draft z k;
   ids <- verify guesses p_draft (score target z guesses);
   rest <- plain target (z ++ ids) (n - length ids);
   ret (ids ++ rest))
  =D= plain target z n.
Proof.
  induction k as [|k IH]; intros [|n] z Hk f; try lia.
  - apply one_token.  (* k = 0: one draw from the target *)
  - (* The first guess is g. By step 4 we compare with a first token that is tested as g is. *)
    change (plain target z (S n) f) with (sample (target z) (go_on target z n f)).
    rewrite <- (tested_guess (target z) (draft z) (Hp z) (Hd z)).
    apply sum_ext. intros g _. f_equal.
    (* An accepted g is followed by a round of k - 1 guesses, which is right by induction. *)
    unfold go_on at 1. rewrite <- (IH n) by lia.
    (* After a rejected g the other guesses do not matter: their probabilities sum to 1. *)
    etransitivity; [|apply average_guess, Hd]. apply (average_guess draft Hd). intros [gs ds] _.
    apply first_guess.
Qed.
End OneRound.

(* ---- 7. A text *)

(* What the rest needs of a step: it writes a token, and it can be put before plain decoding. *)
Definition exact_step target (step : text -> nat -> D text) :=
  forall x n, (0 < n)%nat ->
  always nonempty (step x n) /\
  (ids <- step x n; rest <- plain target (x ++ ids) (n - length ids); ret (ids ++ rest))
  =D= plain target x n.

Lemma speculative_step_is_exact draft target K :
  (forall x, distribution (draft x)) -> (forall x, distribution (target x)) ->
  exact_step target (speculative_step target K (guess draft) verify).
Proof.
  intros Hd Hp x n Hn. split.
  - eapply always_bind; [apply (average_guess draft Hd)|]. intros [gs ds] _. apply always_verify.
  - intros f. rewrite <- (step_5 draft target Hd Hp (Nat.min (K x) (n - 1)) n x) by lia.
    apply (average_guess draft Hd). now intros [gs ds].
Qed.

Lemma autoregressive_step_is_exact target : exact_step target (autoregressive_step target).
Proof.
  intros x [|n] Hn; [easy|]. split; [apply always_one_token|]. intros f. apply one_token.
Qed.

Definition never : token -> bool := fun _ => false.
Lemma up_to_never ids : up_to_stop ids never = ids.
Proof. induction ids as [|v ids IH]; cbn; now rewrite ?IH. Qed.

(* The hybrid argument: a round is put before plain decoding, then one before that, and so on. *)
Theorem step_6 target step : exact_step target step ->
  forall rounds x N, (N <= rounds)%nat -> loop rounds x step N never =D= plain target x N.
Proof.
  intros exact. induction rounds as [|rounds IH]; intros x [|N] HN f; try easy.
  destruct (exact x (S N) ltac:(lia)) as [writes one_round]. rewrite <- one_round.
  apply writes. intros ids Hids. cbn [loop]. rewrite up_to_never. cbn [never].
  apply IH. destruct ids; [easy|cbn; lia].
Qed.

Lemma cut_twice ids rest stop :
  up_to_stop (ids ++ rest) stop
  = if existsb stop ids then up_to_stop ids stop else ids ++ up_to_stop rest stop.
Proof.
  induction ids as [|v ids IH]; cbn; [easy|]. destruct (stop v); [easy|]. rewrite IH.
  now destruct (existsb stop ids).
Qed.

Lemma last_stops ids stop : ids <> [] -> stop (last (up_to_stop ids stop) O) = existsb stop ids.
Proof.
  induction ids as [|v [|u ids] IH]; intros H; [easy| |]; cbn in *;
    destruct (stop v) eqn:E; cbn; rewrite ?E; try easy.
  rewrite <- IH by easy. now destruct (stop u).
Qed.

(* Cuts: the text with stop tokens is plain decoding's, cut after the first of them. *)
Theorem step_7 target step stop :
  (forall x, distribution (target x)) -> exact_step target step ->
  forall rounds x N, (N <= rounds)%nat ->
  loop rounds x step N stop =D= (ids <- plain target x N; ret (up_to_stop ids stop)).
Proof.
  intros Hp exact. induction rounds as [|rounds IH]; intros x [|N] HN f; try easy.
  destruct (exact x (S N) ltac:(lia)) as [writes one_round].
  unfold bind at 1. rewrite <- one_round. apply writes. intros ids Hids.
  cbv zeta. rewrite last_stops by easy. pose proof (cut_twice ids) as cut.
  destruct (existsb stop ids) eqn:E.
  - symmetry. apply (average_constant (plain target (x ++ ids) (S N - length ids)));
      [now apply average_plain|]. intros rest. unfold ret. now rewrite cut, E.
  - assert (up_to_stop ids stop = ids) as ->.
    { specialize (cut [] stop). rewrite E in cut. cbn in cut. now rewrite !app_nil_r in cut. }
    unfold bind. rewrite IH by (destruct ids; [easy|cbn; lia]).
    apply (average_plain target Hp). intros rest _. unfold ret. now rewrite cut, E.
Qed.

Lemma exact_step_is_lossless target step x N stop :
  (forall x, distribution (target x)) -> exact_step target step ->
  generate x step N stop =D= autoregressive_sampling x target N stop.
Proof.
  intros Hp exact f. unfold autoregressive_sampling, generate.
  rewrite (step_7 target step stop Hp exact) by easy. symmetry.
  now apply (step_7 target _ stop Hp (autoregressive_step_is_exact target)).
Qed.

(* Theorem 1. For every vocabulary, draft and target whose rows are distributions, prompt x, N,
   stop tokens, and K that is any function of the text: one distribution. *)
Theorem lossless draft target K x N stop :
  (forall x, distribution (draft x)) -> (forall x, distribution (target x)) ->
  speculative_sampling x draft target N K stop =D= autoregressive_sampling x target N stop.
Proof.
  intros Hd Hp. now apply exact_step_is_lossless; [|apply speculative_step_is_exact].
Qed.

(* The same theorem as docs/proof.md states it: the probability of the text y is a product. *)
Fixpoint product (target : model) (x y : text) : Qc :=
  match y with [] => 1 | v :: y => target x v * product target (x ++ [v]) y end.

Definition is (y ids : text) : bool := if list_eq_dec Nat.eq_dec y ids then true else false.

Lemma plain_product target : (forall x, distribution (target x)) ->
  forall y x, Forall (fun v => (v < V)%nat) y ->
  probability (ids <- plain target x (length y); ret (is y ids)) = product target x y.
Proof.
  intros Hp. induction y as [|v y IH]; intros x H; [easy|].
  apply Forall_cons_iff in H as [Hv Hy]. cbn [product]. rewrite <- IH by easy.
  rewrite <- (sum_at V v (fun g => target x g * _) Hv). apply sum_ext. intros g _.
  rewrite <- Qcmult_assoc. f_equal. unfold bind, ret, is. destruct (Nat.eqb_spec g v) as [->|Hg].
  - rewrite Qcmult_1_r. apply (average_plain target Hp). intros ids _.
    destruct (list_eq_dec _ y ids), (list_eq_dec _ (v :: y) _); congruence.
  - rewrite Qcmult_0_r. apply average_constant; [now apply average_plain|]. intros ids.
    destruct (list_eq_dec _ (v :: y) _); congruence.
Qed.

Theorem theorem_1 draft target K x y :
  (forall x, distribution (draft x)) -> (forall x, distribution (target x)) ->
  Forall (fun v => (v < V)%nat) y ->
  probability (ids <- speculative_sampling x draft target (length y) K never; ret (is y ids))
  = product target x y.
Proof.
  intros Hd Hp Hy. rewrite <- (plain_product target Hp y x Hy).
  apply (step_6 target); [now apply speculative_step_is_exact|easy].
Qed.

(* ---- 8. How many guesses are tested and accepted; tests that do not use the draft's rows *)

(* Theorem 2: k guesses are drawn, and tau of them are tested. Whether a guess is tested depends
   on the text x, on the guesses before it, and on a random number w that the guesses do not
   depend on. w is drawn from the row `numbers x`; K may depend on it too. *)
Fixpoint tau (tested : list token -> bool) (guesses : list token) : nat :=
  match guesses with
  | [] => O
  | g :: guesses => if tested [] then S (tau (fun before => tested (g :: before)) guesses) else O
  end.

Definition guess_some (numbers : text -> row) (tested : nat -> text -> list token -> bool)
    draft (x : text) (k : nat) : D (list token * list row) :=
  w <- sample (numbers x);
  '(guesses, p_draft) <- guess draft x k;
  let n_tested := tau (tested w x) guesses in
  ret (firstn n_tested guesses, firstn n_tested p_draft).

Lemma step_5_for_stopping_times draft target :
  (forall x, distribution (draft x)) -> (forall x, distribution (target x)) ->
  forall k tested n z, (k < n)%nat ->
  ('(guesses, p_draft) <- guess draft z k;
   let n_tested := tau tested guesses in
   ids <- verify (firstn n_tested guesses) (firstn n_tested p_draft)
                 (score target z (firstn n_tested guesses));
   rest <- plain target (z ++ ids) (n - length ids);
   ret (ids ++ rest))
  =D= plain target z n.
Proof.
  intros Hd Hp. induction k as [|k IH]; intros tested [|n] z Hk f; try lia; [apply one_token|].
  change (plain target z (S n) f) with (sample (target z) (go_on target z n f)).
  destruct (tested []) eqn:T.
  - rewrite <- (tested_guess (target z) (draft z) (Hp z) (Hd z)).
    apply sum_ext. intros g _. f_equal.
    unfold go_on at 1. rewrite <- (IH (fun before => tested (g :: before)) n) by lia.
    etransitivity; [|apply average_guess, Hd]. apply (average_guess draft Hd). intros [gs ds] _.
    unfold ret, tau. rewrite T. apply first_guess.
  - (* the first guess is not tested: one draw from the target, whatever was guessed *)
    apply (average_constant (guess draft z (S k))); [now apply average_guess|].
    intros [[|g gs] ds]; cbn [tau]; rewrite ?T; apply one_token.
Qed.

Theorem theorem_2 draft target numbers tested K x N stop :
  (forall x, distribution (draft x)) -> (forall x, distribution (target x)) ->
  (forall x, distribution (numbers x)) ->
  generate x (speculative_step target K (guess_some numbers tested draft) verify) N stop
  =D= autoregressive_sampling x target N stop.
Proof.
  intros Hd Hp Hw. apply exact_step_is_lossless; [easy|]. clear x N. intros x n Hn. split.
  - eapply always_bind with (P := fun _ => True); [|intros [gs ds] _; apply always_verify].
    eapply always_bind; [apply always_sample|]. intros w _.
    eapply always_bind; [apply (average_guess draft Hd)|]. intros [gs ds] _. now apply always_ret.
  - intros f. apply (average_constant (sample (numbers x))); [now apply average_sample|]. intros w.
    rewrite <- (step_5_for_stopping_times draft target Hd Hp (Nat.min (K x) (n - 1))
                  (tested w x) n x) by lia.
    apply (average_guess draft Hd). now intros [gs ds].
Qed.

(* The ceiling. J g y is the probability that the guess is g and the test writes y: the guess has
   the distribution d, and the token has p. Then g is accepted (written) with probability at most
   sum min(d, p), which the ratio test reaches (step 1). *)
Theorem ceiling (p d : row) (J : token -> token -> Qc) :
  (forall g y, 0 <= J g y) ->
  (forall g, (g < V)%nat -> sum V (fun y => J g y) = d g) ->
  (forall y, (y < V)%nat -> sum V (fun g => J g y) = p y) ->
  sum V (fun v => J v v) <= sum V (fun v => min (d v) (p v)).
Proof.
  intros H Hd Hp. apply sum_le. intros v Hv.
  assert (J v v <= d v) by (rewrite <- Hd by easy; apply (term_le V (J v)); auto).
  assert (J v v <= p v) by (rewrite <- Hp by easy; apply (term_le V (fun g => J g v)); auto).
  order.
Qed.

(* Any way to guess: at most k guesses, allowed ones, with probabilities that sum to 1. *)
Definition guesser (allowed : list token -> list row -> Prop)
    (make_guesses : text -> nat -> D (list token * list row)) :=
  forall x k, (forall c, make_guesses x k (fun _ => c) = c) /\
    always (fun '(guesses, p_draft) => (length guesses <= k)%nat /\ allowed guesses p_draft)
           (make_guesses x k).

(* A test that is exact for each value of the guesses is lossless for every way to guess. *)
Lemma exact_for_each_guess allowed target K make_guesses test x N stop :
  (forall x, distribution (target x)) -> guesser allowed make_guesses ->
  (forall guesses p_draft x n, allowed guesses p_draft -> (length guesses < n)%nat ->
    always nonempty (test guesses p_draft (score target x guesses)) /\
    (ids <- test guesses p_draft (score target x guesses);
     rest <- plain target (x ++ ids) (n - length ids); ret (ids ++ rest)) =D= plain target x n) ->
  generate x (speculative_step target K make_guesses test) N stop
  =D= autoregressive_sampling x target N stop.
Proof.
  intros Hp guesses exact. apply exact_step_is_lossless; [easy|]. clear x N. intros x n Hn.
  destruct (guesses x (Nat.min (K x) (n - 1))) as [total few]. split.
  - eapply always_bind; [exact few|]. intros [gs ds] [H1 H2]. apply (exact gs ds x n H2). lia.
  - intros f. rewrite <- total. apply few. intros [gs ds] [H1 H2]. apply (exact gs ds x n H2). lia.
Qed.

(* match: the target draws its own token; the next row is valid while this is the guess. *)
Fixpoint match_verify (guesses : list token) (p_draft p_target : list row) : D text :=
  match guesses, p_target with
  | g :: guesses, p :: p_target =>
      token <- sample p;
      if token =? g then ids <- match_verify guesses p_draft p_target; ret (token :: ids)
      else ret [token]
  | _, _ => token <- sample (last p_target (fun _ => 0)); ret [token]
  end.

Theorem match_is_lossless target K make_guesses x N stop :
  (forall x, distribution (target x)) -> guesser (fun _ _ => True) make_guesses ->
  generate x (speculative_step target K make_guesses match_verify) N stop
  =D= autoregressive_sampling x target N stop.
Proof.
  intros Hp H. apply (exact_for_each_guess _ _ _ _ _ _ _ _ Hp H). clear.
  intros guesses ds. induction guesses as [|g gs IH]; intros x [|n] _ Hn; try easy.
  - split; [apply always_one_token|]. intros f. apply one_token.
  - destruct (IH (x ++ [g]) n I ltac:(cbn in Hn; lia)) as [writes exact]. split.
    + eapply always_bind; [apply always_sample|]. intros v _.
      destruct (v =? g); [|now apply always_ret].
      now apply (always_longer nonempty _ (fun ids => ids)).
    + intros f. transitivity (sample (target x) (go_on target x n f)); [|easy].
      rewrite <- one_token. apply sum_ext. intros v _. f_equal.
      destruct (Nat.eqb_spec v g) as [->|]; [|easy]. unfold bind, ret. cbn [length app].
      replace (S n - 1)%nat with n by lia.
      rewrite <- (exact (fun rest => f (g :: rest))). apply writes. intros ids _.
      unfold bind, ret. now rewrite <- app_assoc.
Qed.

(* The one-hot test: `verify` with one-hot rows, however the guesses were chosen. *)
Definition one_hot (g : token) : row := fun v => if v =? g then 1 else 0.

Lemma sample_one_hot g f : (g < V)%nat -> sample (one_hot g) f = f g.
Proof.
  intros Hg. rewrite <- (sum_at V g f Hg). apply sum_ext. intros v _. unfold one_hot. ring.
Qed.

Lemma one_hot_distribution g : (g < V)%nat -> distribution (one_hot g).
Proof.
  intros Hg. split; [intros v _; unfold one_hot; now destruct (v =? g)|].
  rewrite <- (sample_one_hot g (fun _ => 1) Hg). apply sum_ext. intros. ring.
Qed.

Theorem one_hot_test_is_lossless target K make_guesses x N stop :
  (forall x, distribution (target x)) ->
  guesser (fun guesses p_draft => Forall (fun g => (g < V)%nat) guesses
                                  /\ p_draft = map one_hot guesses) make_guesses ->
  generate x (speculative_step target K make_guesses verify) N stop
  =D= autoregressive_sampling x target N stop.
Proof.
  intros Hp H. apply (exact_for_each_guess _ _ _ _ _ _ _ _ Hp H). clear - Hp.
  intros guesses ds x n [Hg ->]. revert x n. induction Hg as [|g gs Hg _ IH]; intros x [|n] Hn;
    (split; [apply always_verify|]); try easy; intros f; [apply one_token|].
  transitivity (sample (target x) (go_on target x n f)); [|easy].
  rewrite <- (tested_guess (target x) (one_hot g) (Hp x) (one_hot_distribution g Hg)).
  rewrite sample_one_hot by easy. cbn [map]. rewrite first_guess. f_equal. f_equal.
  apply (proj2 (IH (x ++ [g]) n ltac:(cbn in Hn; lia))).
Qed.
End Vocabulary.
