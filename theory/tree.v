(* Trees of guesses: verify_tree writes the target's text, proved so that a machine checks it.

Miao et al. (2023), SpecInfer, VerifyStochastic; the code is variants/tree.py. Read lossless.v
first. docs/proof.md says how to run both.

    here          variants/tree.py
    shape         how many guesses each position has at most, with the shapes below them
    tree          the guesses for one position in the order drawn, each with its row and, below
                  it, the guesses for the next position
    siblings      the row of the next guess for the position after x, given the guesses already
                  drawn there; None if no more can be drawn. So a theorem for all siblings
                  covers draws with replacement, without, and guesses that are not drawn
                  (one-hot rows)
    left          what remains of the target's distribution after the rejected siblings

A token that is drawn twice is one node in the code. Here it is two, and the second is never
accepted, because nothing is left of a rejected token. *)

From Coq Require Import Arith Field Lia List Lqa QArith Qcanon.
Require Import lossless.
Import ListNotations.
Open Scope Qc_scope.
Open Scope list_scope.

(* ---- 1. The algorithm *)

(* `next` are the further guesses for one position, `below` those for the position after it. *)
Inductive shape := NoGuess | OneGuess (below next : shape).
Inductive tree := Nothing | Guess (token : token) (row : row) (below next : tree).

Fixpoint levels (s : shape) : nat :=
  match s with NoGuess => O | OneGuess below next => Nat.max (S (levels below)) (levels next) end.

(* The first k levels: no more are drawn than tokens are wanted. *)
Fixpoint cut (k : nat) (s : shape) : shape :=
  match k, s with
  | S j, OneGuess below next => OneGuess (cut j below) (cut k next)
  | _, _ => NoGuess
  end.

Section Tree.
Variable V : nat.
Variable siblings : text -> list token -> option row.
Variable target : model.

Fixpoint guess_shape (x : text) (drawn : list token) (s : shape) : D tree :=
  match s, siblings x drawn with
  | OneGuess below next, Some row =>
      token <- sample V row;
      next <- guess_shape x (drawn ++ [token]) next;
      below <- guess_shape (x ++ [token]) [] below;
      ret (Guess token row below next)
  | _, _ => ret Nothing
  end.

(* `target x` is the row at the end of the path so far: one pass computes all these rows. *)
Fixpoint verify_tree (x : text) (left : row) (guesses : tree) : D text :=
  match guesses with
  | Guess token row below next =>
      accepted <- accept (min (left token / row token) 1);
      if accepted : bool then
        ids <- verify_tree (x ++ [token]) (target (x ++ [token])) below;
        ret (token :: ids)
      else
        verify_tree x (residual V left row) next
  | Nothing =>
      token <- sample V left;
      ret [token]
  end.

Definition tree_step (s : text -> shape) (x : text) (n_left : nat) : D text :=
  tree <- guess_shape x [] (cut (n_left - 1) (s x));
  verify_tree x (target x) tree.

(* ---- 2. Rows that are divided by their sum *)

Lemma normalized w : positive V w -> 0 < sum V w -> distribution V (fun v => w v / sum V w).
Proof.
  intros Hw H. split; [intros v Hv; apply positive_quotient; auto; now apply Qclt_le_weak|].
  rewrite (sum_ext _ _ (fun v => / sum V w * w v)), sum_times.
  - apply Qcmult_inv_l. intros E. rewrite E in H. now apply (Qclt_not_eq 0 0).
  - intros. unfold Qcdiv. ring.
Qed.

(* What is left of a distribution is a distribution. *)
Lemma residual_distribution p d : distribution V p -> distribution V (residual V p d).
Proof.
  intros Hp. unfold residual. destruct (Qclt_le_dec 0 _) as [H|_]; [|easy].
  apply normalized; [|easy]. intros v _. unfold surplus. order.
Qed.

(* Guesses that are drawn with replacement, `siblings="independent"`, and without, "distinct". *)
Definition independent (draft : model) (x : text) (drawn : list token) : option row :=
  Some (draft x).

Definition distinct (draft : model) (x : text) (drawn : list token) : option row :=
  let row v := if existsb (Nat.eqb v) drawn then 0 else draft x v in
  if Qclt_le_dec 0 (sum V row) then Some (fun v => row v / sum V row) else None.

Lemma distinct_rows draft x drawn row : distribution V (draft x) ->
  distinct draft x drawn = Some row -> distribution V row.
Proof.
  intros Hd E. unfold distinct in E. destruct (Qclt_le_dec 0 _) as [H|H]; [|easy].
  injection E as <-. apply normalized; [|easy]. intros v Hv.
  destruct (existsb _ drawn); [easy|now apply Hd].
Qed.

(* ---- 3. One round, then the target *)

Hypothesis Hs : forall x drawn row, siblings x drawn = Some row -> distribution V row.
Hypothesis Hp : forall x, distribution V (target x).

Lemma average_guess_shape s : forall x drawn, average (guess_shape x drawn s).
Proof.
  induction s as [|below IHb next IHn]; intros x drawn; [apply average_ret|]. cbn.
  destruct (siblings x drawn) as [row|] eqn:E; [|apply average_ret].
  apply average_bind; [apply average_sample; eauto|]. intros g.
  apply average_bind; [apply IHn|]. intros n.
  apply average_bind; [apply IHb|]. intros b. apply average_ret.
Qed.

Lemma always_verify_tree t : forall x left, always nonempty (verify_tree x left t).
Proof.
  induction t as [|g row below IHb next IHn]; intros x left; [apply always_one_token|].
  eapply always_bind; [apply always_accept|]. intros [] _; [|apply IHn].
  now apply (always_longer nonempty _ (fun ids => ids)).
Qed.

(* What is left is written, whatever it is: step 4 for the first guess, and then for the guesses
   after it (IHn) and below it (IHb). *)
Lemma tree_round s : forall n x drawn left f, distribution V left -> (levels s <= n)%nat ->
  (tree <- guess_shape x drawn s;
   ids <- verify_tree x left tree;
   rest <- plain V target (x ++ ids) (S n - length ids); ret (ids ++ rest)) f
  = sample V left (go_on V target x n f).
Proof.
  induction s as [|below IHb next IHn]; intros n x drawn left f Hl Hn; [apply one_token|].
  unfold bind at 1. cbn [guess_shape levels] in *.
  destruct (siblings x drawn) as [row|] eqn:E; [|apply one_token].
  rewrite <- (tested_guess V left row Hl (Hs _ _ _ E)). apply sum_ext. intros g _. f_equal.
  rewrite <- (IHn n x (drawn ++ [g])) by (now apply residual_distribution || lia).
  rewrite Qcplus_comm. etransitivity; [|apply (proj2 (average_guess_shape next x _))].
  apply (proj1 (average_guess_shape next _ _)). intros nx _. rewrite Qcplus_comm.
  destruct n as [|n]; [lia|].
  change (go_on V target x (S n) f g)
    with (sample V (target (x ++ [g])) (go_on V target (x ++ [g]) n (fun rest => f (g :: rest)))).
  rewrite <- (IHb n (x ++ [g]) []) by (easy || lia).
  etransitivity; [|apply (proj2 (average_guess_shape below _ []))].
  apply (proj1 (average_guess_shape below _ [])). intros b _.
  unfold bind, ret. cbn [verify_tree]. unfold bind, ret. rewrite accept_ratio. f_equal; f_equal.
  apply always_verify_tree. intros ids _. now rewrite <- app_assoc.
Qed.

Lemma levels_cut k s : (levels (cut k s) <= k)%nat.
Proof.
  revert k. induction s as [|below IHb next IHn]; intros [|k]; cbn -[Nat.max]; try lia.
  specialize (IHb k). specialize (IHn (S k)). lia.
Qed.

Lemma tree_step_is_exact s : exact_step V target (tree_step s).
Proof.
  intros x [|n] Hn; [easy|]. split.
  - eapply always_bind; [apply average_guess_shape|]. intros t _. apply always_verify_tree.
  - intros f. unfold tree_step. replace (S n - 1)%nat with n by lia.
    apply (tree_round (cut n (s x)) n x []); [easy|apply levels_cut].
Qed.
End Tree.

Theorem tree_is_lossless V siblings target s x N stop :
  (forall x drawn row, siblings x drawn = Some row -> distribution V row) ->
  (forall x, distribution V (target x)) ->
  generate x (tree_step V siblings target s) N stop
  =D= autoregressive_sampling V x target N stop.
Proof. intros Hs Hp. now apply exact_step_is_lossless; [|apply tree_step_is_exact]. Qed.
