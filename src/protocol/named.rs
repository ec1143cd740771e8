// SPDX-License-Identifier: GPL-2.0-only

//! Enums whose variants are counted, and shown by name.

/// An enum without fields, with `ALL`, `index()` and `name()`.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $Name {
            $($(#[$doc])* $variant,)*
        }

        impl $Name {
            /// All of them.
            $vis const ALL: [$Name; [$($text),*].len()] = [$($Name::$variant),*];

            /// Its place among all of them, for counters.
            $vis const fn index(self) -> usize {
                self as usize
            }

            /// A short name, for statistics and traces.
            $vis const fn name(self) -> &'static str {
                match self {
                    $($Name::$variant => $text,)*
                }
            }
        }
    };
}
#[allow(unused_imports, reason = "the host's crate has no user outside")]
pub(crate) use named_enum;
