;; One product, y = x wᵀ, of float32 vectors and a matrix that is rounded to 4 or 8 bits, 32 numbers
;; a group. Plain JavaScript needs six times as long. `npm run kernel` writes kernel.js from this.
;;
;; A number of the matrix is w = q · scale + least; scale and least (float32) are its group's. With
;; 8 bits, q is from -127 to 127 and least is 0: it is not stored. With 4 bits, q is from 0 to 15: byte
;; i of a group's 16 bytes has number i in its lower half and number i + 16 in its upper.
;; Addresses and lengths are in bytes, except n, m and T, which count numbers.
(module
  (memory (export "memory") 1)

  ;; Write the 32 · groups numbers of a row of 4 bits at $to, as float32.
  (func $spread4 (export "spread4")
    (param $q i32) (param $scale i32) (param $least i32) (param $to i32) (param $groups i32)
    (local $s v128) (local $l v128) (local $bytes v128) (local $half v128)
    (loop $group
      (local.set $s (v128.load32_splat (local.get $scale)))
      (local.set $l (v128.load32_splat (local.get $least)))
      (local.set $bytes (v128.load (local.get $q)))
      (local.set $half (v128.and (local.get $bytes) (i8x16.splat (i32.const 15))))
      (v128.store offset=0 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_low_i16x8_u (i16x8.extend_low_i8x16_u (local.get $half)))))))
      (v128.store offset=16 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_high_i16x8_u (i16x8.extend_low_i8x16_u (local.get $half)))))))
      (v128.store offset=32 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_low_i16x8_u (i16x8.extend_high_i8x16_u (local.get $half)))))))
      (v128.store offset=48 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_high_i16x8_u (i16x8.extend_high_i8x16_u (local.get $half)))))))
      (local.set $half (i8x16.shr_u (local.get $bytes) (i32.const 4)))
      (v128.store offset=64 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_low_i16x8_u (i16x8.extend_low_i8x16_u (local.get $half)))))))
      (v128.store offset=80 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_high_i16x8_u (i16x8.extend_low_i8x16_u (local.get $half)))))))
      (v128.store offset=96 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_low_i16x8_u (i16x8.extend_high_i8x16_u (local.get $half)))))))
      (v128.store offset=112 (local.get $to) (f32x4.add (local.get $l) (f32x4.mul (local.get $s)
        (f32x4.convert_i32x4_u (i32x4.extend_high_i16x8_u (i16x8.extend_high_i8x16_u (local.get $half)))))))
      (local.set $q (i32.add (local.get $q) (i32.const 16)))
      (local.set $scale (i32.add (local.get $scale) (i32.const 4)))
      (local.set $least (i32.add (local.get $least) (i32.const 4)))
      (local.set $to (i32.add (local.get $to) (i32.const 128)))
      (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1))))))

  ;; Write the 32 · groups numbers of a row of 8 bits at $to, as float32.
  (func $spread8 (export "spread8")
    (param $q i32) (param $scale i32) (param $to i32) (param $groups i32)
    (local $end i32) (local $s v128) (local $eight v128)
    (loop $group
      (local.set $s (v128.load32_splat (local.get $scale)))
      (local.set $end (i32.add (local.get $q) (i32.const 32)))
      (loop $part
        (local.set $eight (v128.load8x8_s (local.get $q)))
        (v128.store offset=0 (local.get $to) (f32x4.mul (local.get $s)
          (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $eight)))))
        (v128.store offset=16 (local.get $to) (f32x4.mul (local.get $s)
          (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $eight)))))
        (local.set $to (i32.add (local.get $to) (i32.const 32)))
        (br_if $part (i32.lt_u (local.tee $q (i32.add (local.get $q) (i32.const 8))) (local.get $end))))
      (local.set $scale (i32.add (local.get $scale) (i32.const 4)))
      (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1))))))

  ;; Return the dot product of n float32 numbers at $x and at $w; n is a multiple of 16.
  (func $dot (param $x i32) (param $w i32) (param $n i32) (result f32)
    (local $end i32) (local $a v128) (local $b v128) (local $c v128) (local $d v128)
    (local.set $end (i32.add (local.get $w) (i32.shl (local.get $n) (i32.const 2))))
    (loop $sixteen ;; four sums of four numbers each grow side by side
      (local.set $a (f32x4.add (local.get $a)
        (f32x4.mul (v128.load offset=0 (local.get $x)) (v128.load offset=0 (local.get $w)))))
      (local.set $b (f32x4.add (local.get $b)
        (f32x4.mul (v128.load offset=16 (local.get $x)) (v128.load offset=16 (local.get $w)))))
      (local.set $c (f32x4.add (local.get $c)
        (f32x4.mul (v128.load offset=32 (local.get $x)) (v128.load offset=32 (local.get $w)))))
      (local.set $d (f32x4.add (local.get $d)
        (f32x4.mul (v128.load offset=48 (local.get $x)) (v128.load offset=48 (local.get $w)))))
      (local.set $x (i32.add (local.get $x) (i32.const 64)))
      (br_if $sixteen
        (i32.lt_u (local.tee $w (i32.add (local.get $w) (i32.const 64))) (local.get $end))))
    (local.set $a
      (f32x4.add (f32x4.add (local.get $a) (local.get $b)) (f32x4.add (local.get $c) (local.get $d))))
    (f32.add
      (f32.add (f32x4.extract_lane 0 (local.get $a)) (f32x4.extract_lane 1 (local.get $a)))
      (f32.add (f32x4.extract_lane 2 (local.get $a)) (f32x4.extract_lane 3 (local.get $a)))))

  ;; Multiply x (T, n) by the transpose of a matrix (m, n); write y (T, m). Each row of the matrix is
  ;; spread once, at $row, and multiplied with every row of x. $least is 0 for 8 bits.
  (func (export "linear")
    (param $x i32) (param $T i32) (param $n i32) (param $m i32)
    (param $q i32) (param $scale i32) (param $least i32) (param $row i32) (param $y i32)
    (local $j i32) (local $t i32) (local $groups i32) (local $at i32)
    (local.set $groups (i32.shr_u (local.get $n) (i32.const 5)))
    (loop $rows
      (if (local.get $least)
        (then (call $spread4
          (i32.add (local.get $q) (i32.mul (local.get $at) (i32.const 16)))
          (i32.add (local.get $scale) (i32.mul (local.get $at) (i32.const 4)))
          (i32.add (local.get $least) (i32.mul (local.get $at) (i32.const 4)))
          (local.get $row) (local.get $groups)))
        (else (call $spread8
          (i32.add (local.get $q) (i32.mul (local.get $at) (i32.const 32)))
          (i32.add (local.get $scale) (i32.mul (local.get $at) (i32.const 4)))
          (local.get $row) (local.get $groups))))
      (local.set $t (i32.const 0))
      (loop $each
        (f32.store
          (i32.add (local.get $y) (i32.mul (i32.const 4)
            (i32.add (i32.mul (local.get $t) (local.get $m)) (local.get $j))))
          (call $dot
            (i32.add (local.get $x) (i32.mul (i32.const 4) (i32.mul (local.get $t) (local.get $n))))
            (local.get $row) (local.get $n)))
        (br_if $each
          (i32.lt_u (local.tee $t (i32.add (local.get $t) (i32.const 1))) (local.get $T))))
      (local.set $at (i32.add (local.get $at) (local.get $groups)))
      (br_if $rows
        (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (local.get $m))))))
