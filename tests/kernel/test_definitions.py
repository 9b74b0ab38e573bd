"""Every kind of definition that the standard library offers is sent to the ranks, used there, and returned."""

# ruff: noqa: E501  # definitions are as a user may write them

from __future__ import annotations

import sys

import pytest

from tests.live_notebook import Notebook

CASES = {
    "a class with slots, one of them private": """
class S:
  __slots__=('n','__p')
  def __init__(self): self.n=1; self.__p=2
  def p(self): return self.__p
s=S()
def f():
  return s.n,s.p(),hasattr(s,'__dict__'),S.__slots__
""",
    "a single slot": """
class S:
  __slots__='n'
s=S(); s.n=4
def f(): return s.n, hasattr(s,'__dict__')
""",
    "a slot for weak references alone": """
class S:
  __slots__='__weakref__'
s=S()
import weakref
def f(): return weakref.ref(s)() is s, hasattr(s,'__dict__')
""",
    "slots that are inherited, with documentation": """
class A:
  __slots__=('a',)
class B(A):
  __slots__={'b':'doc'}
b=B(); b.a=1; b.b=2
def f(): return b.a,b.b,hasattr(b,'__dict__'), B.__slots__
""",
    "a frozen data class with slots": """
from dataclasses import dataclass, replace
@dataclass(slots=True, frozen=True)
class P:
  x:int=1
  y:int=2
p=P(3)
def f(): return p, replace(p,x=9), hasattr(p,'__dict__'), P.__slots__, P(3)==p
""",
    "functools.cached_property": """
from functools import cached_property
class C:
  n=0
  @cached_property
  def v(self):
    'doc'
    self.n+=1
    return self.n
c=C()
def f(): return c.v,c.v,C.v.__doc__, type(C.v).__name__
""",
    "functools.singledispatch that calls itself": """
from functools import singledispatch
@singledispatch
def area(x): 'doc'; return 'other'
@area.register
def _(x:int): return x*2
@area.register(list)
def _(x): return [area(i) for i in x]
def f(): return area(1),area([1,'a']),area.__doc__,area.__name__, area.dispatch(bool)(3), len(area.registry)
""",
    "functools.singledispatch on a class of the notebook": """
from functools import singledispatch
class K: pass
@singledispatch
def g(x): return 'other'
@g.register
def _(x:K): return 'K'
def f(): return g(K()), g(1)
""",
    "functools.singledispatchmethod": """
from functools import singledispatchmethod
class A:
  @singledispatchmethod
  def m(self,x): return 'other'
  @m.register
  def _(self,x:int): return 'int'
  @m.register
  def _(self,x:list): return [self.m(i) for i in x]
  @singledispatchmethod
  @classmethod
  def c(cls,x): return cls.__name__
a=A()
def f(): return a.m(1),a.m([1,'']),a.m(''),A.c(3)
""",
    "an enum with a data class mixed in": """
from enum import Enum
from dataclasses import dataclass
@dataclass
class P:
  x:int
  y:int=0
class E(P,Enum):
  A=1,2
  B=3
  def s(self): return self.x+self.y
def f(): return E.A.x,E.A.y,E.A.value,E.B.s(),E(E.A.value) is E.A, [m.name for m in E], E.A
""",
    "an enum whose members have attributes": """
import enum
class Planet(enum.Enum):
  EARTH=(1.5,2.5)
  MARS=(3.0,4.0)
  def __init__(self,m,r): self.m=m; self.r=r
  @property
  def d(self): return self.m/self.r
def f(): return Planet.EARTH.m, Planet.MARS.d, Planet((3.0,4.0)) is Planet.MARS, Planet.EARTH.value, '__init__' in vars(Planet)
""",
    "an enum with a __new__": """
import enum
class C(bytes, enum.Enum):
  def __new__(cls,v,label):
    o=bytes.__new__(cls,[v]); o._value_=v; o.label=label; return o
  A=(1,'a')
  B=(2,'b')
def f(): return C.A.label, bytes(C.B), C(2) is C.B, C.A.value, C.A.name
""",
    "an enum with an alias": """
import enum
class C(enum.Enum):
  A=1
  B=1
  D=2
def f(): return C.B is C.A, C['B'].name, list(C), list(C.__members__)
""",
    "enum.IntEnum": """
import enum
class C(enum.IntEnum):
  A=1
  B=2
def f(): return C.A+1, C(2), sorted(C), C.B==2, str(C.A), f'{C.A}'
""",
    "an enum of strings": """
import enum
class C(str, enum.Enum):
  A='a'
  B='b'
def f(): return C.A=='a', C('b'), str(C.A), f'{C.A}', C.A.upper(), repr(C.A)
""",
    "enum.StrEnum": """
import enum
class C(enum.StrEnum):
  A=enum.auto()
  B=enum.auto()
def f(): return C.A=='a', C('b'), str(C.A), f'{C.A}', repr(C.A)
""",
    "enum.Flag": """
import enum
class P(enum.Flag):
  R=enum.auto()
  W=enum.auto()
  RW=R|W
both=P.R|P.W
def f(): return both, P.RW, P.R in both, ~P.R, P(3), both is P.RW, list(P)
""",
    "enum.IntFlag with a boundary": """
import enum
class P(enum.IntFlag, boundary=enum.KEEP):
  R=1
  W=2
def f(): return P(9), P.R|8, P(3)
""",
    "an enum that generates values": """
import enum
class N(str,enum.Enum):
  def _generate_next_value_(name,start,count,last): return name.lower()
  ABC=enum.auto()
  D=enum.auto()
def f(): return N.ABC.value, N('d'), N.D
""",
    "an enum with _missing_": """
import enum
class N(enum.Enum):
  A=1
  @classmethod
  def _missing_(cls,v): return cls.A
def f(): return N(77)
""",
    "an enum of dates": """
import enum, datetime
class D(datetime.date, enum.Enum):
  X=2020,1,2
def f(): return D.X.year, D.X.value, D.X.isoformat(), D.X
""",
    "an enum of tuples": """
import enum
class D(tuple, enum.Enum):
  X=(1,2)
  Y=(3,4)
def f(): return D.X[1], D.X.value, len(D.Y), D.Y
""",
    "an enum of named tuples": """
import enum
from typing import NamedTuple
class P(NamedTuple):
  a:int
  b:int=5
class D(P, enum.Enum):
  X=(1,2)
  Y=(3,)
def f(): return D.X.b, D.X.value, D.Y.a, D.Y.b
""",
    "an enum with methods": """
import enum
class E(enum.Enum):
  A='a'
  def g(self): return E.A is self
  @classmethod
  def default(cls): return cls.A
  @staticmethod
  def st(): return 5
def f(): return E.A.g(), E.default(), E.st()
""",
    "an enum that derives from one without members": """
import enum
class Base(enum.Enum):
  def label(self): return self.name+'!'
class E(Base):
  A=1
def f(): return E.A.label(), issubclass(E,Base), isinstance(E.A,Base)
""",
    "members of an enum that refer to each other": """
import enum
class E(enum.Enum):
  A=1
  B=2
E.A.next=E.B
E.B.next=E.A
def f(): return E.A.next, E.B.next.next, E.A.next.next is E.A
""",
    "an enum of lists": """
import enum
class E(enum.Enum):
  A=[1]
  B={'a':1}
def f(): return E([1]), E({'a':1}), E.A
""",
    "a data class that another derives from": """
from dataclasses import dataclass, fields, field, MISSING, KW_ONLY
@dataclass
class A:
  x:int
  z:list=field(default_factory=list)
  _:KW_ONLY=None
  k:int=3
def f():
  @dataclass
  class B(A):
    y:int=2
  return fields(A)[0].default is MISSING, B(1), A(1).z is not A(2).z, [q.kw_only for q in fields(A)]
""",
    "__init_subclass__ with an argument": """
class Plugin:
  registry={}
  def __init_subclass__(cls, *, name, **kw):
    super().__init_subclass__(**kw)
    assert hasattr(cls,'run')
    Plugin.registry[name]=cls
class A(Plugin,name='a'):
  def run(self): return 'A'
def f():
  class B(Plugin,name='b'):
    def run(self): return 'B'
  return A().run(), list(Plugin.registry), Plugin.registry['a'] is A, A.__bases__, A.__mro__[1] is Plugin, Plugin.__subclasses__()[:1]
""",
    "a metaclass that needs what the class defines": """
class M(type):
  made=[]
  def __new__(m,name,bases,ns,*,tag='t'):
    assert 'x' in ns
    c=super().__new__(m,name,bases,ns); c.tag=tag; return c
  def __init__(c,name,bases,ns,**k):
    super().__init__(name,bases,ns); M.made.append(name)
  def __call__(c,*a):
    o=super().__call__(*a); o.called=True; return o
  @property
  def p(c): return c.__name__
class A(metaclass=M,tag='q'):
  x=1
class B(A):
  x=2
def f(): return A.tag,B.tag,M.made,A().called,A.p,type(B) is M
""",
    "a metaclass that forbids assignments": """
class M(type):
  def __setattr__(c,k,v): raise TypeError('frozen')
class A(metaclass=M):
  x=1
def f():
  try: A.x=2
  except TypeError as e: return A.x,str(e)
""",
    "a metaclass with __prepare__": """
class M(type):
  @classmethod
  def __prepare__(m,name,bases): return {'extra':1}
class A(metaclass=M): pass
def f(): return A.extra
""",
    "a metaclass that derives from ABCMeta": """
import abc
class M(abc.ABCMeta): pass
class A(metaclass=M):
  @abc.abstractmethod
  def g(self): ...
class B(A):
  def g(self): return 1
A.register(int)
def f():
  try: A()
  except TypeError as e: x=str(e)[:20]
  return B().g(), isinstance(3,A), x
""",
    "a protocol that isinstance checks": """
from typing import Protocol, runtime_checkable
@runtime_checkable
class H(Protocol):
  def hi(self)->str: ...
class X:
  def hi(self): return 'x'
class Y(H):
  def hi(self): return 'y'
def f():
  try: H()
  except TypeError as e: r=type(e).__name__
  return isinstance(X(),H), isinstance(3,H), Y().hi(), issubclass(X,H), r
""",
    "a protocol": """
from typing import Protocol
class H(Protocol):
  x:int
class Y(H):
  def __init__(self): self.x=4
def f():
  try: isinstance(3,H)
  except TypeError as e: r=type(e).__name__
  return Y().x, r
""",
    "a generic protocol": """
from typing import Protocol, TypeVar, Generic
T=TypeVar('T')
class Box(Protocol[T]):
  def get(self)->T: ...
class IB(Box[int]):
  def get(self): return 3
def f(): return IB().get(), Box[int].__args__, Box.__parameters__==(T,)
""",
    "typing.TypedDict": """
from typing import TypedDict, get_type_hints
class D(TypedDict,total=False):
  a:int
  b:str
class E(D):
  c:int
def f(): return D(a=1), sorted(E.__required_keys__), sorted(E.__optional_keys__), get_type_hints(E), E.__total__
""",
    "typing.NotRequired": """
from typing import TypedDict, Required, NotRequired
class D(TypedDict):
  a:int
  b:NotRequired[str]
def f(): return D(a=1), sorted(D.__required_keys__), sorted(D.__optional_keys__)
""",
    "typing.NamedTuple": """
from typing import NamedTuple
class P(NamedTuple):
  'doc'
  a:int
  b:int=2
  def s(self): return self.a+self.b
p=P(1)
def f(): return p,p.s(),P(5)._asdict(),p._replace(a=4),P.__doc__,P.__match_args__,hasattr(p,'__dict__'), P.__annotations__
""",
    "a class that derives from a named tuple": """
from collections import namedtuple
class P(namedtuple('P','a b')):
  __slots__=()
  @property
  def s(self): return self.a+self.b
p=P(1,2)
def f(): return p.s, hasattr(p,'__dict__'), p
""",
    "a generic class": """
from typing import Generic, TypeVar
T=TypeVar('T'); U=TypeVar('U')
class A(Generic[T,U]):
  def __init__(self,x): self.x=x
class B(A[int,U]): pass
a=A[int,str](3)
def f(): return a.x, A.__parameters__==(T,U), B.__parameters__==(U,), B[str](2).x, A[int,str]==A[int,str], B.__orig_bases__
""",
    "typing.ParamSpec": """
from typing import ParamSpec, TypeVar, Callable, Concatenate
P=ParamSpec('P'); R=TypeVar('R')
def deco(g:Callable[P,R])->Callable[P,R]:
  def w(*a:P.args,**k:P.kwargs)->R: return g(*a,**k)
  return w
@deco
def h(x): return x+1
def f(): return h(1), deco.__annotations__['g'].__args__[0] is P, P
""",
    "typing.TypeVarTuple": """
from typing import TypeVarTuple, Generic, Unpack
Ts=TypeVarTuple('Ts')
class A(Generic[Unpack[Ts]]): pass
def g(*a:Unpack[Ts]): return a
def f(): return A[int,str], g(1), A.__parameters__==(Ts,)
""",
    "typing.NewType": """
from typing import NewType
UserId=NewType('UserId',int)
def g(x:UserId)->UserId: return UserId(x+1)
def f(): return g(1), UserId.__supertype__, g.__annotations__['x'] is UserId, UserId
""",
    "a property of its own kind": """
class cp(property):
  def __get__(self,o,c): return self.fget(c)
class A:
  @cp
  def n(cls): return cls.__name__
def f(): return A.n
""",
    "a property that takes an argument": """
class cp(property):
  def __init__(self,fget,tag): super().__init__(fget); self.tag=tag
class A:
  n=cp(lambda s: 5,'t')
def f(): return A().n, A.n.tag, A.n.fget(1)
""",
    "a property with a setter and a deleter": """
class A:
  def __init__(self): self._n=1
  @property
  def n(self):
    'doc'
    return self._n
  @n.setter
  def n(self,v): self._n=v
  @n.deleter
  def n(self): self._n=None
def f():
  a=A(); a.n=5; x=a.n; del a.n
  return x,a.n,A.n.__doc__
""",
    "a class method of its own kind": """
class cm(classmethod):
  def __init__(self,g,tag='x'): super().__init__(g); self.tag=tag
class A:
  @cm
  def n(cls): return cls.__name__
def f(): return A.n(), A.__dict__['n'].tag
""",
    "an abstract property": """
import abc
class A(abc.ABC):
  @property
  @abc.abstractmethod
  def n(self): ...
class B(A):
  n=3
def f():
  try: A()
  except TypeError: return B().n
""",
    "a descriptor that knows its name": """
class D:
  def __set_name__(self,o,n): self.n='_'+n
  def __get__(self,o,c): return self if o is None else getattr(o,self.n,0)
  def __set__(self,o,v): setattr(o,self.n,v*2)
class A:
  x=D()
  y=D()
def f():
  a=A(); a.x=3
  return a.x,a.y,vars(a)
""",
    "functools.partialmethod": """
import functools
class A:
  def s(self,v,k=1): return v*k
  d=functools.partialmethod(s,k=2)
def f(): return A().d(4)
""",
    "functools.total_ordering": """
import functools
@functools.total_ordering
class A:
  def __init__(self,n): self.n=n
  def __eq__(self,o): return self.n==o.n
  def __lt__(self,o): return self.n<o.n
def f(): return A(1)<=A(2), A(3)>=A(2), sorted([A(2),A(1)])[0].n
""",
    "methods that are cached": """
import functools
class A:
  @functools.lru_cache(maxsize=8)
  def g(self,n): return n*2
  @staticmethod
  @functools.cache
  def s(n): return n
def f(): return A().g(3),A.s(2),A.g.cache_parameters()
""",
    "context managers": """
import contextlib
@contextlib.contextmanager
def cm(): yield 4
class CD(contextlib.ContextDecorator):
  def __enter__(self): return 1
  def __exit__(self,*a): return False
@CD()
def g(): return 2
@contextlib.asynccontextmanager
async def acm(): yield 5
import asyncio
async def m():
  async with acm() as v: return v
def f():
  with cm() as x:
    from concurrent.futures import ThreadPoolExecutor
    return x, g(), ThreadPoolExecutor(1).submit(asyncio.run, m()).result()
""",
    "nested classes": """
import pickle
class O:
  class I:
    class J: n=3
  def m(self): pass
j=O.I.J()
def f(): return O.I.J.__qualname__, type(pickle.loads(pickle.dumps(j))) is O.I.J, O.m.__qualname__, repr(O.I)
""",
    "an exception with an argument": """
class E(Exception):
  def __init__(self,a,b): super().__init__(a); self.b=b
def f():
  try: raise E(1,2)
  except E as e: return e.args,e.b, E.__mro__[1]
""",
    "an exception group": """
class G(ExceptionGroup):
  def derive(self,e): return G(self.message,e)
def f():
  try: raise G('m',[ValueError(1)])
  except* ValueError as e: x=str(e), type(e).__name__
  return x
""",
    "the order of attributes": """
class A:
  z=1
  b=2
  a=3
def f(): return [k for k in vars(A) if not k.startswith('_')]
""",
    "several bases": """
class A:
  x=1
class B(A):
  x=2
class C(A):
  x=1
class D(B,C):
  x=1
def f(): return D.x,C.x,B.x,D.__mro__
""",
    "__class_getitem__": """
class A:
  def __class_getitem__(cls,i): return (cls.__name__,i)
def f(): return A[3]
""",
    "classes that derive from collections": """
from collections import OrderedDict, defaultdict, Counter, UserDict, deque, ChainMap
class L(list):
  t=1
class D(defaultdict): pass
class U(UserDict): pass
class Q(deque): pass
l=L([1]); l.k=2
d=D(list,a=[1]); u=U(a=1); q=Q([1,2],maxlen=5)
def f(): return l,l.k,d,u,q,q.maxlen,Counter('aab')
""",
    "a singleton that pickles by its name": """
class _S:
  def __repr__(self): return 'S'
  def __reduce__(self): return 'MISSING'
MISSING=_S()
def g(x=MISSING): return x is MISSING
def f(): return g(), g(1)
""",
    "super() and __class__": """
class A:
  def g(self): return 1
class B(A):
  def g(self): return super().g()+1
  def c(self): return __class__
def f(): return B().g(), B().c() is B
""",
    "type aliases and type parameters": """
type Number = int
type Numbers[T] = list[T]
class Box[T]:
    def __init__(self, x: T): self.x = x
class Flag[U: int](Box[U]): pass
def same[K](x: K) -> K: return x
def f(): return Number.__value__, Numbers.__type_params__, Flag[bool](True).x, Flag.__type_params__[0].__bound__, same(Number)
""",
    "a data class with all kinds of fields": """
from dataclasses import InitVar, dataclass, field, fields
from typing import ClassVar
@dataclass(order=True, kw_only=True)
class Row:
    x: int
    shared: ClassVar[int] = 3
    start: InitVar[int] = 2
    y: int = field(init=False, compare=False)
    def __post_init__(self, start): self.y = self.x + start
def f(): return Row(x=1), Row(x=1) < Row(x=2), [each.name for each in fields(Row)], Row.shared
""",
    "a metaclass that makes singletons": """
class Single(type):
    made = {}
    def __call__(cls, *a, **k):
        if cls not in Single.made: Single.made[cls] = super().__call__(*a, **k)
        return Single.made[cls]
class Only(metaclass=Single): pass
only = Only()
def f(): return Only() is only
""",
    "an enum within a class": """
import enum, pickle
class Outer:
    class Kind(enum.Enum):
        A = 1
    kind = Kind.A
def f(): return Outer.kind, Outer.Kind.__qualname__, pickle.loads(pickle.dumps(Outer.kind)) is Outer.Kind.A
""",
    "enum.member and enum.nonmember": """
import enum
class Kind(enum.Enum):
    @enum.member
    def RUN(self): return 1
    @enum.nonmember
    class Data: x = 5
    A = 3
def f(): return list(Kind.__members__), Kind.Data.x, Kind(3)
""",
}

SINCE = {
    "an exception group": (3, 11),
    "enum.Flag": (3, 11),
    "enum.IntFlag with a boundary": (3, 11),
    "enum.StrEnum": (3, 11),
    "enum.member and enum.nonmember": (3, 11),
    "type aliases and type parameters": (3, 12),
    "typing.NotRequired": (3, 11),
    "typing.TypeVarTuple": (3, 11),
}
"""The versions of Python from which on a case works."""


BEFORE_EACH_MERGE = {
    "a class with slots, one of them private",
    "a frozen data class with slots",
    "functools.cached_property",
    "functools.singledispatch that calls itself",
    "functools.singledispatchmethod",
    "an enum with a data class mixed in",
    "an enum whose members have attributes",
    "an enum with a __new__",
    "enum.Flag",
    "an enum with _missing_",
    "members of an enum that refer to each other",
    "a data class that another derives from",
    "__init_subclass__ with an argument",
    "a metaclass that needs what the class defines",
    "a protocol that isinstance checks",
    "typing.TypedDict",
    "typing.NamedTuple",
    "a generic class",
    "typing.ParamSpec",
    "a property that takes an argument",
    "a descriptor that knows its name",
    "methods that are cached",
    "nested classes",
    "an exception group",
    "classes that derive from collections",
    "a singleton that pickles by its name",
    "super() and __class__",
    "type aliases and type parameters",
}
"""One or a few of each kind, each of which is rebuilt in a way of its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BEFORE_EACH_MERGE else pytest.mark.nightly) for name in CASES]
)
def test_ranks_use_and_return(notebook: Notebook, name: str) -> None:
    if sys.version_info < SINCE.get(name, (3, 10)):
        pytest.skip("Python is too old")
    notebook.check(CASES[name])
    notebook.check("results, own = notebook_launcher(f, num_processes=2, device='cpu'), f()")
    assert notebook.value("[repr(result) == repr(own) for result in results]") == [True, True], notebook.check(
        "results, own"
    ).value


RETURNED = {
    "slots": (
        """
class Slotted:
    __slots__ = ("n", "__p")
    def __init__(self): self.n, self.__p = 1, 2
    def p(self): return self.__p
""",
        "Slotted()",
        "[type(r) is Slotted and (r.n, r.p(), hasattr(r, '__dict__')) == (1, 2, False) for r in results]",
    ),
    "a frozen data class with slots": (
        "from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass Point:\n    x: int = 1",
        "Point(4)",
        "[r == Point(4) for r in results]",
    ),
    "a member of an enum": (
        """
import enum
class Planet(enum.Enum):
    EARTH = 1.5, 2.5
    def __init__(self, mass, radius): self.mass = mass
""",
        "Planet.EARTH",
        "[r is Planet.EARTH for r in results]",
    ),
    "what a cached property has kept": (
        "import functools\nclass Cached:\n    @functools.cached_property\n    def n(self): return 5",
        "[(c := Cached()).n, c][1]",
        "[vars(r) == {'n': 5} and type(r) is Cached for r in results]",
    ),
    "a class that the rank defines": (
        "def define():\n    import enum\n    class Own(enum.Enum):\n        A = 1\n        B = 1\n    return Own.B",
        "define()",
        "[r.name == 'A' and type(r)['B'] is r for r in results]",
    ),
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_value_comes_back_as_the_notebooks_own(notebook: Notebook, name: str) -> None:
    cell, value, holds = RETURNED[name]
    notebook.check(cell)
    notebook.check(f"results = notebook_launcher(lambda: {value}, num_processes=2, device='cpu')")
    assert notebook.value(holds) == [True, True]


def test_what_can_not_be_rebuilt_is_refused_before_a_rank_starts(notebook: Notebook) -> None:
    notebook.check("import ctypes\nclass Pair(ctypes.Structure):\n    _fields_ = [('left', ctypes.c_int)]")
    cell = notebook.run("notebook_launcher(lambda: Pair(3).left, num_processes=2, device='cpu')")
    assert cell.error == "PayloadError"
    assert "`Pair.left` is a _ctypes.CField" in cell.error_text or "a _ctypes.CField" in cell.error_text


def test_definitions_arrive_on_persistent_ranks(notebook: Notebook) -> None:
    notebook.check(
        """
import enum, functools
from dataclasses import dataclass

@dataclass(slots=True)
class Point:
    x: int
    y: int

class Corner(Point, enum.Enum):
    LEFT = 1, 2

@functools.singledispatch
def doubled(value): return [doubled(each) for each in value]

@doubled.register
def _(value: int): return 2 * value
"""
    )
    cell = notebook.check("%%accelerate -n 2\nCorner.LEFT.x, Point(3, 4), doubled([1, [2]])")
    assert "(1, Point(x=3, y=4), [2, [4]])" in cell.text
    notebook.check("%accelerate stop")
